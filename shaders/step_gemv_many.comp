#version 460
// Computes: y = W x (+ bias), or y += that, for several inputs x: a matrix of the decode steps of several sessions
// (GemvArgs of lib/device/kernels/gemv.h). A result has the bits that step_gemv.comp gives it.
// Shapes: W [n_rows, 32 * n_blocks] in planes, x as step_pack.comp leaves them, y and bias [n_rows].
// Launch: a subgroup for every so many rows.
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/step_packed.glsl"
#include "shared.h"

layout(push_constant, std430) uniform Push { StepGemvManyPush a; };
layout(constant_id = 1) const uint kColumns = 1;

const uint kMatrices = 1u;
#include "common/step_rows.glsl"

Rows rows_at(uint row) { return Rows(uvec2[1](a.w), a.n_rows * a.n_blocks, row * a.n_blocks); }
void prepare_input() {}
Input block_of_column(uint column, uint b) { return packed_block(a.inputs, a.stride, a.n_blocks, column, b); }

void put_row(uint row, float sum[kSums]) {
    const float bias = is_null(a.bias) ? 0.0 : Floats(a.bias).v[row];
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
        precise float y = sum[c] + bias;
        if (a.accumulate != 0u) y = Floats(a.y[c]).v[row] + y;
        Floats(a.y[c]).v[row] = y;
    }
}

void main() { multiply_rows(a.n_rows, a.n_blocks); }
