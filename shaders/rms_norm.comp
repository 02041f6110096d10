#version 460
// Computes: y = x / sqrt(mean(x^2) + eps) * weight, or y += that (lib/ops/rms_norm_ref.cpp); y may be x.
// Shapes: x, y [n_tok, width], weight [width]. Launch: a workgroup for each row.
// Numerics: squares are summed in f32, whose range they may exceed: such rows become 0.
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { RmsNormPush a; };

void main() {
    const uint first = gl_WorkGroupID.x * a.width;
    precise float own = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += kInvocations) {
        const float x = Floats(a.x).v[first + i];
        own = fma(x, x, own);
    }
    precise float mean = workgroup_sum(own) / float(a.width) + a.eps;
    // One step of Newton: drivers may give inversesqrt to 2 units in the last place only.
    precise float inverse = inversesqrt(mean);
    precise float twice = fma(-mean * inverse, inverse, 1.0);
    if (abs(twice) < 1.0) inverse = fma(0.5 * inverse, twice, inverse);  // not where mean is infinite or NaN
    for (uint i = gl_LocalInvocationID.x; i < a.width; i += kInvocations) {
        precise float y = Floats(a.x).v[first + i] * inverse;
        y *= Floats(a.weight).v[i];
        if (a.accumulate != 0u) y = Floats(a.y).v[first + i] + y;
        Floats(a.y).v[first + i] = y;
    }
}
