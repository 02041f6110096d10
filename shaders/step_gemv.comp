#version 460
// Computes: y = W norm(x) (+ bias), or y += that, for up to three matrices of one type and one row of x: the GEMV of a
// decode step (GemvArgs of lib/device/kernels.h); without norm W x.
// Shapes: W [n_rows, 32 * n_blocks] in planes, x, norm [32 * n_blocks], y, bias [n_rows]; at most 14,336 columns.
// Launch: a subgroup for every so many rows, those of the three matrices one after another.
// Numerics: x is rounded to 15 bits with a scale for each 32; products are integers, sums of blocks f32. A result has
// the same bits beside whatever other rows.
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/step_input.glsl"
#include "shared.h"

layout(push_constant, std430) uniform Push { StepGemvPush a; };

const uint kMatrices = 1u, kColumns = 1u;
#include "common/step_rows.glsl"

void prepare_input() { take_input(a.x, a.norm, a.eps, a.n_blocks); }
Input block_of_column(uint column, uint b) { return input_block(b); }

struct Part {
    uvec2 y, w, bias;
    uint n_rows, row, accumulate;
};

// Not by an index, which would have to be the same for all lanes of the workgroup.
Part part_at(uint row) {
    if (row < a.n_rows[0]) return Part(a.y[0], a.w[0], a.bias[0], a.n_rows[0], row, a.accumulate & 1u);
    row -= a.n_rows[0];
    if (row < a.n_rows[1]) return Part(a.y[1], a.w[1], a.bias[1], a.n_rows[1], row, a.accumulate & 2u);
    return Part(a.y[2], a.w[2], a.bias[2], a.n_rows[2], row - a.n_rows[1], a.accumulate & 4u);
}

Rows rows_at(uint row) {
    const Part p = part_at(row);
    return Rows(uvec2[1](p.w), p.n_rows * a.n_blocks, p.row * a.n_blocks);
}

void put_row(uint row, float sum[kSums]) {
    const Part p = part_at(row);
    precise float y = sum[0] + (is_null(p.bias) ? 0.0 : Floats(p.bias).v[p.row]);
    if (p.accumulate != 0u) y = Floats(p.y).v[p.row] + y;
    Floats(p.y).v[p.row] = y;
}

void main() { multiply_rows(a.n_rows[0] + a.n_rows[1] + a.n_rows[2], a.n_blocks); }
