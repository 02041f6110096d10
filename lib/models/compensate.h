// RazorAttention's compensation token: what a stream with a window of its own no longer sees takes part in attention as
// one token with the mean of the keys and the mean of the values, which counts as often as there are tokens in it.
// Paper: Tang et al., "RazorAttention: Efficient KV Cache Compression Through Retrieval Heads", arXiv:2407.15891, sec.
// 3; docs/algorithms.md, "RazorAttention".
#pragma once

#include "kv/kv_cache.h"
#include "ops/attn_paged.h"

namespace weir {

// Whether streams of this layer have compensation tokens. Attention must give AttnPagedArgs::lse then.
inline bool has_compensation(const KvCache& kv, const AttnPagedArgs& attn) {
  return kv.compensates() && attn.head_windows != nullptr;
}

// Puts the compensation tokens into what attention gave: out, lse, and page_mass, whose rows are in table order. The
// result is that of attention with one more key and value. Nothing changes in rows that see all tokens.
void compensate(const KvCache& kv, uint32_t layer, const AttnPagedArgs& attn);

// The same of one KV head with a window of its own: `head` are its arguments (args_of_head), `left` and `values` what
// has left its stream, and `sums` [2, head_dim] is room for sums.
void compensate_head(const AttnPagedArgs& head, uint32_t kv_head, const LeftSum& left, const float* values,
                     float* sums);

}  // namespace weir
