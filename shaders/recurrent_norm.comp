#version 460
// Computes: norm and gate of the outputs of delta_net and mamba2, in place (lib/ops/delta_net_ref.cpp, mamba2_ref.cpp).
// Shapes: shaders/recurrent.h. Launch: a workgroup for each row, further ones in steps of the grid. Numerics: f32.
#extension GL_GOOGLE_include_directive : require
#include "common/recurrent.glsl"
#include "common/subgroup.glsl"
#include "recurrent.h"

layout(push_constant, std430) uniform Push { RecurrentNormPush a; };

void main() {
    const uint lane = gl_LocalInvocationID.x;
    for (uint row = gl_WorkGroupID.x; row < a.n_rows; row += gl_NumWorkGroups.x) {
        const uint y = row * a.n, group = row % a.n_groups, z = row / a.n_groups * a.z_stride + group * a.n;
        float own = 0.0;
        for (uint i = lane; i < a.n; i += kInvocations) {
            float x = Floats(a.y).v[y + i];
            if (a.gate_first != 0u) Floats(a.y).v[y + i] = x *= silu(Floats(a.z).v[z + i]);
            own = fma(x, x, own);
        }
        const float root = sqrt(workgroup_sum(own) / float(a.n) + a.eps);
        for (uint i = lane; i < a.n; i += kInvocations) {
            const float x = Floats(a.y).v[y + i] / root * Floats(a.weight).v[group * a.weight_stride + i];
            Floats(a.y).v[y + i] = a.gate_first != 0u ? x : x * silu(Floats(a.z).v[z + i]);
        }
    }
}
