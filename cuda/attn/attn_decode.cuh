// Attention of one query row over KV pages, for decode steps. One launch rotates the query, appends the new key and
// value, attends the pages in splits along the sequence, merges the splits, and computes page masses and the policy's
// observation.
#pragma once

#include "core/status.h"
#include "ops/ops.h"
#include "ops/step_rules.h"

namespace weir::cuda {

// Maximum number of splits of a stream's pages; the partial results have room for as many.
inline constexpr uint32_t kMaxSplits = 128;

struct AttnDecodeArgs {
  AttnPagedArgs attn;  // n_tok is 1
  // With append attn.q, rope.k and rope.v are the outputs of the projections. The kernel does what rope_append does,
  // and updates the digests that append_keeps_digest names, but leaves q and k in memory unchanged.
  bool append = false;
  RopeAppendArgs rope;
  const uint32_t* n_tokens =
      nullptr;  // Device memory: the position of the query, used instead of attn.pos; null: attn.pos is used.
  std::byte* scratch = nullptr;                  // attn_decode_scratch_bytes
  uint32_t* counters = nullptr;                  // [n_kv_heads] zero before and after
  unsigned long long* pages_attended = nullptr;  // += the pages listed; null: not counted
  // With stamps: does what page_stamp would do afterwards with page_mass; `now` is the query's position + 1, whatever
  // stamp.now says. Without: the op is needed.
  bool stamps = false;
  PageStampArgs stamp;
  bool overlap = false;
};

Status attn_decode(OpContext& cx, const AttnDecodeArgs& a);

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes);

// Whether `stamps` can be set for this call: the rule needs no ranking, and one block has all query heads of a KV head.
bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp);

}  // namespace weir::cuda
