#version 460
// Computes: short_conv (lib/ops/short_conv_ref.cpp).
// Shapes: shaders/recurrent.h. Launch: an invocation for each channel of a token, and of a row that the state keeps;
// further ones in steps of the grid. Numerics: f32.
#extension GL_GOOGLE_include_directive : require
#include "common/recurrent.glsl"
#include "common/subgroup.glsl"
#include "recurrent.h"

layout(push_constant, std430) uniform Push { ShortConvPush a; };

// b * v in row `at`, counted from the state's oldest row.
float input_at(Floats before, uint channel, uint at) {
    const uint n_before = a.n_taps - 1u;
    if (at < n_before) return before.v[at * a.n_channels + channel];
    const uint b = (at - n_before) * 3u * a.n_channels + channel;
    return Floats(a.x).v[b] * Floats(a.x).v[b + 2u * a.n_channels];
}

void main() {
    const bool second = second_is_current(a.current);
    Floats before = Floats(second ? a.rows[1] : a.rows[0]), after = Floats(second ? a.rows[0] : a.rows[1]);
    const uint n = (a.n_tok + a.n_taps - 1u) * a.n_channels, step = gl_NumWorkGroups.x * kInvocations;
    for (uint e = gl_WorkGroupID.x * kInvocations + gl_LocalInvocationID.x; e < n; e += step) {
        const uint channel = e % a.n_channels, row = e / a.n_channels;
        if (row >= a.n_tok) {
            after.v[(row - a.n_tok) * a.n_channels + channel] = input_at(before, channel, row);
            continue;
        }
        float sum = is_null(a.bias) ? 0.0 : Floats(a.bias).v[channel];
        for (uint j = 0u; j < a.n_taps; ++j)
            sum = fma(Floats(a.weight).v[channel * a.n_taps + j], input_at(before, channel, row + j), sum);
        Floats(a.y).v[e] = sum * Floats(a.x).v[(row * 3u + 1u) * a.n_channels + channel];
    }
}
