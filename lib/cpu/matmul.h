// The matrix ops of the CPU backend: embed, matmul and glu_matmul of the op table (ops/matmul.h has the contracts).
// Few tokens: GEMV, the rows are streamed once from memory and multiplied with every token (gemv.cpp). Many tokens:
// GEMM, register-blocked over tiles of decoded weights (gemm.cpp). When the weights are integers, the activations of a
// call are 16-bit integers with one scale per 256 columns.
#pragma once

#include "ops/embed.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/table.h"

namespace weir::cpu {

Status embed(OpContext& cx, const EmbedArgs& a);
Status matmul(OpContext& cx, const MatmulArgs& a);
Status glu_matmul(OpContext& cx, const GluMatmulArgs& a);

// Bytes at the front of OpContext::scratch that matmul and glu_matmul use; 64-byte aligned.
uint64_t matmul_scratch_bytes(const OpShapes& shapes);

// Instruction set that the kernels were selected for, static text.
const char* matmul_target();

}  // namespace weir::cpu
