#version 460
// Computes: y = x / sqrt(mean(x^2) + eps) * weight, or y += that (lib/ops/rms_norm_ref.cpp); y may be x.
// Shapes: x, y [n_tok, width], weight [width]. Launch: a workgroup for each row.
// Numerics: squares are summed in f32, whose range they may exceed: such rows become 0.
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common/memory.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { RmsNormPush a; };

const uint kAhead = 8u;  // loads of a lane that are under way at once

void main() {
    const uint first = gl_WorkGroupID.x * a.width, lane = gl_LocalInvocationID.x;
    precise float own = 0.0;
    for (uint at = lane; at < a.width; at += kAhead * kInvocations) {
        float x[kAhead];
        [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
            const uint i = at + k * kInvocations;
            x[k] = i < a.width ? Floats(a.x).v[first + i] : 0.0;
        }
        [[unroll]] for (uint k = 0u; k < kAhead; ++k) own = fma(x[k], x[k], own);
    }
    precise float mean = workgroup_sum(own) / float(a.width) + a.eps;
    // One step of Newton: drivers may give inversesqrt to 2 units in the last place only.
    precise float inverse = inversesqrt(mean);
    precise float twice = fma(-mean * inverse, inverse, 1.0);
    if (abs(twice) < 1.0) inverse = fma(0.5 * inverse, twice, inverse);  // not where mean is infinite or NaN
    for (uint at = lane; at < a.width; at += kAhead * kInvocations) {
        float x[kAhead], weight[kAhead], before[kAhead];
        [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
            const uint i = min(at + k * kInvocations, a.width - 1u);
            x[k] = Floats(a.x).v[first + i];
            weight[k] = Floats(a.weight).v[i];
            before[k] = a.accumulate != 0u ? Floats(a.y).v[first + i] : 0.0;
        }
        [[unroll]] for (uint k = 0u; k < kAhead; ++k) {
            const uint i = at + k * kInvocations;
            if (i >= a.width) break;
            precise float y = x[k] * inverse;
            y *= weight[k];
            if (a.accumulate != 0u) y = before[k] + y;
            Floats(a.y).v[first + i] = y;
        }
    }
}
