// The op mamba2: a layer of Mamba-2, between its two matrices.
#pragma once

#include <cstdint>

#include "ops/recurrent.h"
#include "ops/types.h"

namespace weir {

// Per token, of a row x: z [n_heads, value_dim], then the convolution's input (v [n_heads, value_dim], then B and C
// [n_groups, key_dim]), then dt [n_heads]. The convolution's output goes through silu. Head h uses group
// h / (n_heads / n_groups). With d = softplus(dt[h] + dt_bias[h]):
//   S <- exp(d a[h]) S + d B v^T;  o <- S^T C + skip[h] v
// and y = norm(o * silu(z)), an RMS norm of each group of n_heads / n_groups heads with the weights `norm`.
// Paper: Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, sec. 7.
struct Mamba2Args {
  float* y;  // out [n_tok, n_heads, value_dim]
  float* x;  // [n_tok, n_heads value_dim + conv.n_channels + n_heads]; overwritten
  uint32_t n_tok;
  uint32_t n_groups, n_heads, key_dim, value_dim;  // n_heads is a multiple of n_groups
  ConvArgs conv;                                   // n_channels = n_heads value_dim + 2 n_groups key_dim
  const float* a;                                  // [n_heads] negative
  const float* dt_bias;                            // [n_heads]
  const float* skip;                               // [n_heads]
  const float* norm;                               // [n_heads, value_dim]
  float eps;
  LayerState state;
};

}  // namespace weir
