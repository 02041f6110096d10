// GEMM in f16 with f32 sums, for ops with many tokens, and the packing of f32 rows into f16.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

// c (+)= scale_x[tok] * (x . w^T) (+ bias). x and w are 16-byte aligned, c and partial 8-byte.
struct GemmArgs {
  float* c;              // out [n_tok, n_rows], rows ldc apart
  const __half* x;       // [n_tok, n_cols]
  const float* scale_x;  // [n_tok] or null: 1
  const __half* w;       // [n_rows, n_cols]
  const float* bias;     // [n_rows] or null
  uint32_t n_tok;        // at least 1
  uint32_t n_rows;       // a multiple of 8
  uint32_t n_cols;       // a multiple of 32
  uint32_t ldc;          // even
  bool accumulate;       // c += instead of c =
  // Optional scratch for split-K: a matrix with few tiles is split along n_cols, so that all SMs have work. Each part
  // needs n_tok * n_rows floats; up to kGemmParts are used.
  float* partial;
  size_t n_partial;  // floats at `partial`
};
inline constexpr uint32_t kGemmParts = 8;

Status gemm_f16(OpContext& cx, const GemmArgs& a);

// The same with a given tile (below kGemmTiles) and number of split-K parts, for measurements.
inline constexpr uint32_t kGemmTiles = 5;
Status gemm_f16_tile(OpContext& cx, const GemmArgs& a, uint32_t tile, uint32_t n_parts);

// The same for groups of rows, each of which has a matrix of its own. Group i has rows [begin[i], begin[i + 1]) of x, c
// and scale_x. `gemm` is the same for all groups of a launch, but for w, of which theirs follow one another, and bias,
// of which theirs are bias_stride apart; gemm.n_tok is the most rows that a group can have.
struct GemmGroups {
  GemmArgs gemm;
  const uint32_t* begin;  // device memory
  uint32_t first;         // group of the launch's first matrix
  uint32_t bias_stride;
  uint32_t usual_tok;  // rows of a group on average, by which the tile is chosen
};
Status gemm_f16_groups(OpContext& cx, const GemmGroups& groups, uint32_t n_groups);

// Per row: scale = max|x|, out = x / scale, which keeps f16's 11 bits of mantissa for inputs of any range. A row of
// zeros has scale 0; a row with an infinity or a NaN has scale NaN. n_cols is a multiple of 4, rows are 16-byte
// aligned. With `row_of` row t is row row_of[t] of x.
Status pack_rows_f16(OpContext& cx, const float* x, __half* out, float* scale, uint32_t n_tok, uint32_t n_cols,
                     const uint32_t* row_of = nullptr);

// y = activation(gate) * up, all [n_tok, n_cols]; and the same, packed into f16. y may be gate or up.
Status gate_mul(OpContext& cx, Gate activation, const float* gate, const float* up, float* y, uint32_t n_tok,
                uint32_t n_cols);
Status gate_mul_pack_f16(OpContext& cx, Gate activation, const float* gate, const float* up, __half* out, float* scale,
                         uint32_t n_tok, uint32_t n_cols);

}  // namespace weir::cuda
