#version 460
// Computes: y = activation(Wg x (+ bias)) * (Wu x (+ bias)) for several inputs x: the gated matrices of the decode
// steps of several sessions (GemvArgs of lib/device/kernels.h). A result has the bits that step_glu.comp gives it.
// Shapes: Wg, Wu [n_rows, 32 * n_blocks] in planes, x as step_pack.comp leaves them, y and biases [n_rows].
// Launch: a subgroup for every so many rows.
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/gate.glsl"
#include "common/step_packed.glsl"
#include "shared.h"

layout(push_constant, std430) uniform Push { StepGluManyPush a; };
layout(constant_id = 1) const uint kColumns = 1;

const uint kMatrices = 2u;
#include "common/step_rows.glsl"

Rows rows_at(uint row) { return Rows(uvec2[2](a.gate, a.up), a.n_rows * a.n_blocks, row * a.n_blocks); }
void prepare_input() {}
Input block_of_column(uint column, uint b) { return packed_block(a.inputs, a.stride, a.n_blocks, column, b); }

void put_row(uint row, float sum[kSums]) {
    const float gate_bias = is_null(a.gate_bias) ? 0.0 : Floats(a.gate_bias).v[row];
    const float up_bias = is_null(a.up_bias) ? 0.0 : Floats(a.up_bias).v[row];
    [[unroll]] for (uint c = 0u; c < kColumns; ++c) {
        precise float y = gated(a.activation, sum[c] + gate_bias, sum[kColumns + c] + up_bias);
        Floats(a.y[c]).v[row] = y;
    }
}

void main() { multiply_rows(a.n_rows, a.n_blocks); }
