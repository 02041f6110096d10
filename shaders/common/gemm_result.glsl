// What becomes of the sums of a product of matrices of rows.
#ifndef WEIR_GEMM_RESULT_GLSL
#define WEIR_GEMM_RESULT_GLSL
#include "common/gate.glsl"
#include "common/memory.glsl"

// y[at], of row `row` of W and row `tok` of x.
void write_result(GemmPush a, uint tok, uint row, uint at, float sum) {
    precise float y = sum;
    if (!is_null(a.bias)) y += Floats(a.bias).v[row];
    if (!is_null(a.gates)) y *= sigmoid(Floats(a.gates).v[tok]);
    if (a.result == kGemmAdd) y = Floats(a.y).v[at] + y;
    if (a.result == kGemmGate) y = gated(a.activation, y, Floats(a.y).v[at]);
    Floats(a.y).v[at] = y;
}

#endif
