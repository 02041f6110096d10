#version 460
// Computes: y = activation(Wg x (+ bias)) * (Wu x (+ bias)) (lib/ops/glu_matmul_ref.cpp), both of one weight type.
// Shapes: Wg, Wu [n_rows, 32 * n_blocks] in planes, x [n_tok, 32 * n_blocks], y [n_tok, n_rows].
// Launch: a subgroup for each row, rows of x in groups along y. Numerics: sums and gates in f32.
#extension GL_GOOGLE_include_directive : require
#include "common/dot_row.glsl"
#include "common/gate.glsl"

layout(push_constant, std430) uniform Push { GluPush a; };

void main() {
    const uint first = gl_WorkGroupID.y * kColumns;
    const uint step = gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint row = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; row < a.n_rows; row += step) {
        float gate[kMaxColumns], up[kMaxColumns];
        dot_rows(a.gate, row, a.up, row, a.n, a.n_blocks, a.x, first, a.n_tok, gate, up);
        if (gl_SubgroupInvocationID == 0u) {  // not `continue`: see gemv.comp
            const float gate_bias = is_null(a.gate_bias) ? 0.0 : Floats(a.gate_bias).v[row];
            const float up_bias = is_null(a.up_bias) ? 0.0 : Floats(a.up_bias).v[row];
            [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
                if (first + c >= a.n_tok) break;
                precise float y = gated(a.activation, gate[c] + gate_bias, up[c] + up_bias);
                Floats(a.y).v[(first + c) * a.n_rows + row] = y;
            }
        }
    }
}
