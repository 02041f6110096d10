#version 460
// Computes: y = activation(Wg norm(x) (+ bias)) * (Wu norm(x) (+ bias)) for one row of x, both matrices of one type:
// the gated GEMV of a decode step (GemvArgs of lib/device/kernels.h); without norm of x itself.
// Shapes: Wg, Wu [n_rows, 32 * n_blocks] in planes, x, norm [32 * n_blocks], y and biases [n_rows]; at most 14,336
// columns. Launch: a subgroup for every so many rows. Numerics: as step_gemv.comp, gates in f32.
#extension GL_GOOGLE_include_directive : require
#define WEIR_ANY_INVOCATIONS
#include "common/gate.glsl"
#include "common/step_input.glsl"
#include "shared.h"

layout(push_constant, std430) uniform Push { StepGluPush a; };

const uint kMatrices = 2u, kColumns = 1u;
#include "common/step_rows.glsl"

void prepare_input() { take_input(a.x, a.norm, a.eps, a.n_blocks); }
Input block_of_column(uint column, uint b) { return input_block(b); }

Rows rows_at(uint row) {
    return Rows(uvec2[2](a.gate, a.up), a.n_rows * a.n_blocks, row * a.n_blocks);
}

void put_row(uint row, float sum[kSums]) {
    const float gate_bias = is_null(a.gate_bias) ? 0.0 : Floats(a.gate_bias).v[row];
    const float up_bias = is_null(a.up_bias) ? 0.0 : Floats(a.up_bias).v[row];
    precise float y = gated(a.activation, sum[0] + gate_bias, sum[1] + up_bias);
    Floats(a.y).v[row] = y;
}

void main() { multiply_rows(a.n_rows, a.n_blocks); }
