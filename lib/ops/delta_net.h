// The op delta_net: a layer of gated delta rule, between its matrices.
#pragma once

#include <cstdint>

#include "ops/recurrent.h"
#include "ops/types.h"

namespace weir {

// Per token: c = silu(convolution of m), of which q, k [n_key_heads, key_dim] and v [n_heads, value_dim] follow one
// another. Each head of q and k is divided by its length, sqrt(sum of squares + kLengthEps), and q by sqrt(key_dim),
// too. Head h of the sums S [key_dim, value_dim] uses key head h mod n_key_heads, or with `grouped`
// h / (n_heads / n_key_heads):
//   S <- exp(a[h] * softplus(alpha[h] + dt_bias[h])) S
//   e <- sigmoid(beta[h]) (v - S^T k);  S <- S + k e^T;  o <- S^T q
// and y = norm(o) * silu(z), an RMS norm of each head with the weights `norm`.
// Paper: Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", arXiv:2412.06464, sec. 3.
inline constexpr float kLengthEps = 1e-6f;

struct DeltaNetArgs {
  float* y;           // out [n_tok, n_heads, value_dim]
  float* m;           // [n_tok, conv.n_channels], n_channels = 2 n_key_heads key_dim + n_heads value_dim; overwritten
  const float* z;     // [n_tok, n_heads, value_dim]
  const float* beta;  // element of head h in row t: t * gate_stride + h / gate_group * group_stride + h % gate_group
  const float* alpha;
  uint32_t gate_stride, gate_group, group_stride;
  uint32_t n_tok;
  uint32_t n_key_heads, n_heads, key_dim, value_dim;  // n_heads is a multiple of n_key_heads
  bool grouped;
  ConvArgs conv;
  const float* a;        // [n_heads] negative
  const float* dt_bias;  // [n_heads]
  const float* norm;     // [value_dim]
  float eps;             // of the norm
  LayerState state;
};

}  // namespace weir
