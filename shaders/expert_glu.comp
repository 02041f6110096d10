#version 460
// Computes: activation(Wg x (+ bias)) * (Wu x (+ bias)) for the chosen experts of each token.
// Shapes: stacks [n_experts * n_rows, 32 * n_blocks] in planes, x [n_tok, 32 * n_blocks], ids [n_tok, n_used], inner
// [n_tok, n_used, n_rows]. Launch: a subgroup for each row of an expert, along y tokens and their experts.
// Numerics: sums and gates in f32.
#extension GL_GOOGLE_include_directive : require
#include "common/dot_row.glsl"
#include "common/gate.glsl"

layout(push_constant, std430) uniform Push { ExpertGluPush a; };

void main() {
    const uint step = gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint at = gl_WorkGroupID.y; at < a.n_tok * a.n_used; at += gl_NumWorkGroups.y) {
        const uint token = at / a.n_used, first_row = Words(a.ids).v[at] * a.n_rows;
        for (uint r = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; r < a.n_rows; r += step) {
            const uint row = first_row + r;
            float gate[kMaxColumns], up[kMaxColumns];
            dot_rows(a.gate, row, a.up, row, a.n, a.n_blocks, a.x, token, token + 1u, gate, up);
            if (gl_SubgroupInvocationID == 0u) {  // not `continue`: see gemv.comp
                const float gate_bias = is_null(a.gate_bias) ? 0.0 : Floats(a.gate_bias).v[row];
                const float up_bias = is_null(a.up_bias) ? 0.0 : Floats(a.up_bias).v[row];
                Floats(a.inner).v[at * a.n_rows + r] = gated(a.activation, gate[0] + gate_bias, up[0] + up_bias);
            }
        }
    }
}
