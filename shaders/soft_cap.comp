#version 460
// Computes: x = cap * tanh(x / cap) in place (lib/ops/soft_cap_ref.cpp).
// Shapes: x [n]. Launch: an invocation for each element, and further ones in steps of the grid. Numerics: f32.
#extension GL_GOOGLE_include_directive : require
#include "common/math.glsl"
#include "common/subgroup.glsl"

layout(push_constant, std430) uniform Push { SoftCapPush a; };

void main() {
    Floats x = Floats(a.x);
    const uint step = gl_NumWorkGroups.x * kInvocations;
    for (uint i = gl_WorkGroupID.x * kInvocations + gl_LocalInvocationID.x; i < a.n; i += step)
        x.v[i] = a.cap * tanh_near(x.v[i] / a.cap);
}
