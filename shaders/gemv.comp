#version 460
// Computes: y = W x (+ bias), or y += that (lib/ops/matmul_ref.cpp), up to 8 rows of x in a pass over W.
// Shapes: W [n_rows, 32 * n_blocks] in planes, x [n_tok, 32 * n_blocks], y [n_tok, n_rows], bias [n_rows].
// Launch: a subgroup for every two rows of W, rows of x in groups along y.
// Numerics: sums in f32; a result has the same bits beside whatever other rows.
#extension GL_GOOGLE_include_directive : require
#include "common/dot_row.glsl"
#include "common/math.glsl"

layout(push_constant, std430) uniform Push { GemvPush a; };

void write_row(uint row, uint first, float sum[kMaxColumns]) {
    const float bias = is_null(a.bias) ? 0.0 : Floats(a.bias).v[row];
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
        if (first + c >= a.n_tok) break;
        const uint at = (first + c) * a.n_rows + row;
        precise float y = sum[c] + bias;
        if (!is_null(a.gates)) y *= sigmoid(Floats(a.gates).v[first + c]);
        if (a.accumulate != 0u) y = Floats(a.y).v[at] + y;
        Floats(a.y).v[at] = y;
    }
}

void main() {
    const uint first = gl_WorkGroupID.y * kColumns;
    const uint step = 2u * gl_NumWorkGroups.x * gl_NumSubgroups;
    for (uint row = 2u * (gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID); row < a.n_rows; row += step) {
        float even[kMaxColumns], odd[kMaxColumns];
        const uint next = min(row + 1u, a.n_rows - 1u);
        dot_rows(a.w, row, a.w, next, a.n, a.n_blocks, a.x, first, a.n_tok, even, odd);
        if (gl_SubgroupInvocationID == 0u) {  // not `continue`: all lanes meet again before the next rows
            write_row(row, first, even);
            if (next != row) write_row(next, first, odd);
        }
    }
}
