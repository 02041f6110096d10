// The op rope_append: rotation of queries and keys, and storing of keys and values.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// Optional per-head RMS norm of q and k, rotation of both, and storing of k and v (rounded to bf16, nearest even) in
// the pages. With kMinMax digests the maxima and minima are updated with the stored keys; a page's first token
// initialises them.
struct RopeAppendArgs {
  float* q;             // in/out [n_tok, n_heads, head_dim]: rotated with cos_sin
  float* q_sink;        // out, the same shape: q rotated with cos_sin_sink instead; null: not computed
  float* k;             // in/out [n_tok, n_kv_heads, head_dim]: rotated
  const float* v;       // [n_tok, n_kv_heads, head_dim]
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;  // [head_dim] or null
  float norm_eps;
  const float* cos_sin;       // [n_tok, rope_dim / 2, 2]
  const float* cos_sin_sink;  // the same shape, or null
  uint32_t rope_dim;          // even, <= head_dim; elements beyond it are not rotated
  RopeLayout layout;
  uint32_t n_tok, n_heads;
  uint32_t pos;  // position of the first of the n_tok tokens
  KvView kv;
  // [n_kv_heads] table row that holds position `pos`; later tokens follow in this row and the next ones.
  const uint32_t* append_row;
};

}  // namespace weir
