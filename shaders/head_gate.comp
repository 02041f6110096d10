#version 460
// Computes: head_gate (lib/ops/head_gate_ref.cpp).
// Shapes: shaders/recurrent.h. Launch: an invocation for each element of y, further ones in steps of the grid.
// Numerics: f32.
#extension GL_GOOGLE_include_directive : require
#include "common/math.glsl"
#include "common/subgroup.glsl"
#include "recurrent.h"

layout(push_constant, std430) uniform Push { HeadGatePush a; };

void main() {
    const uint n = a.n * a.head_dim, step = gl_NumWorkGroups.x * kInvocations;
    for (uint e = gl_WorkGroupID.x * kInvocations + gl_LocalInvocationID.x; e < n; e += step) {
        const uint q = e / a.head_dim * 2u * a.head_dim + e % a.head_dim;
        Floats(a.y).v[e] = a.apply != 0u ? Floats(a.y).v[e] * sigmoid(Floats(a.qg).v[q + a.head_dim])
                                         : Floats(a.qg).v[q];
    }
}
