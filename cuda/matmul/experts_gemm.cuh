// The products of a mixture of experts' prompt by tensor cores, which decode the weights on their way.
#pragma once

#include "cuda/common/base.cuh"
#include "quant/weight_type.h"

namespace weir::cuda {

// c = scale_x[row] * (x . w^T) (+ bias) of rows that are grouped by expert: expert e has rows [begin[e], begin[e + 1])
// of x, c and scale_x, and the e-th matrix of the stack. Arrays are device memory; x is 16-byte aligned, c 8-byte.
struct ExpertsGemmArgs {
  float* c;               // out [rows, n_rows]
  const __half* x;        // [rows, n_cols]
  const float* scale_x;   // [rows]
  const uint8_t* data;    // [n_experts, n_rows, n_cols] in the planes of the type
  const float* bias;      // [n_experts, n_rows] or null
  const uint32_t* begin;  // [n_experts + 1]
  uint32_t n_tok;         // no expert has more rows
  uint32_t n_experts;
  uint32_t n_rows;  // of an expert's matrix, a multiple of 8
  uint32_t n_cols;  // a multiple of 32
};

// Whether it is the way for this type, and the faster one where experts have `usual_tok` rows on average: up to 128 of
// them share what is decoded, so that with many rows it is better to decode it once, for all.
bool has_experts_gemm(WeightType type, uint32_t usual_tok);
// The bits of gemm_f16_groups over decoded weights.
Status experts_gemm(OpContext& cx, WeightType type, const ExpertsGemmArgs& a);

}  // namespace weir::cuda
