// The op rope_append: rotation of queries and keys, and storing of keys and values.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// Optional per-head RMS norm of q and k, rotation of both, and storing of k and v in the format of the pages, bf16
// rounded to nearest even. Keys that are rounded by channels are so from bf16, whole pages at a time; those that came
// before are in the open page. With kMinMax digests the maxima and minima are updated with the stored keys; a page's
// first token initialises them.
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

// Keys are rounded by so many channels at a time.
inline constexpr uint32_t kChannelsAtOnce = 32;
static_assert(kScaleElements % kChannelsAtOnce == 0);
// The keys of the page that token `tok` of the call is in, up to that token, whose keys are rotated by then: bf16
// [the result, kChannelsAtOnce], from channel `first` on. Those from before the call are read from the open page.
uint32_t page_keys_until(const RopeAppendArgs& a, uint32_t kv_head, uint32_t tok, size_t first, uint16_t* rows);

// A minmax digest of keys that are rounded by channels, of which any row changes all. A channel without numbers could
// be anything.
void digest_channels(const PagePart<const uint16_t>& keys, uint32_t n_rows, uint16_t* high, uint16_t* low);

}  // namespace weir
