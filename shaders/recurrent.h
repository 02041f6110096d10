// Push constants and arguments of the kernels of recurrent layers; the same technique as shared.h.
#ifndef WEIR_SHADERS_RECURRENT_H
#define WEIR_SHADERS_RECURRENT_H

#ifdef __cplusplus
#include "shaders/shared.h"
namespace weir::vulkan {
#else
#include "shared.h"
#endif

// Tokens of a prompt that are convolved together, and columns of a head's sums that a workgroup takes: two for each
// team of eight lanes, which share the rows.
WEIR_SHARED uint kScanTokens = 8;
WEIR_SHARED uint kScanColumns = 64;

// delta_net and mamba2 (lib/ops/recurrent.h): channel c of a token's convolution is x[token * stride + c]; the first
// channels of head 0 of q, k (in Mamba-2 C and B) and v follow. The gates of head h in row t are at t * gate_stride +
// h / gate_group * group_stride + h % gate_group of beta and alpha. y [n_tok, n_heads, value_dim] is what comes before
// norm and gate.
struct RecurrentScanArgs {
  uvec2 y, x, weight, bias, rows[2], sums[2], current, beta, alpha, a, dt_bias, skip;
  uint stride, n_tok, n_channels, n_taps, n_key_heads, n_heads, key_dim, value_dim, grouped;
  uint first_q, first_k, first_v, gate_stride, gate_group, group_stride;
};
// Each kernel has its own.
#ifdef __cplusplus
struct DeltaScanArgs : RecurrentScanArgs {};
struct MambaScanArgs : RecurrentScanArgs {};
#endif

// y [n_rows, n] = norm(y) * weight * silu(z), or norm(y * silu(z)) * weight. Rows are groups of a token's outputs,
// n_groups of each; a token's z begin z_stride after the ones before, and each group's weights weight_stride.
struct RecurrentNormPush {
  uvec2 y, z, weight;
  uint n, n_rows, n_groups, z_stride, weight_stride, gate_first;
  float eps;
};

// y [n_tok, n_channels] = c * convolution of b * v; x [n_tok, 3, n_channels] has b, c and v.
struct ShortConvPush {
  uvec2 y, x, weight, bias, rows[2], current;
  uint n_tok, n_channels, n_taps;
};

// y [n, head_dim] = the queries of qg [n, 2, head_dim], or y *= sigmoid(its gates).
struct HeadGatePush {
  uvec2 y, qg;
  uint n, head_dim, apply;
};

#ifdef __cplusplus
}  // namespace weir::vulkan
#endif

#endif
