// Attention of one query row over KV pages, the decode step's: rotation of the query, appending of the new key and value, split over pages, merge,
// page masses and the policy's observation in one launch.
#pragma once

#include "core/status.h"
#include "ops/ops.h"
#include "ops/step_rules.h"

namespace weir::cuda {

// Splits of a stream's pages at most; partial results have room for so many.
inline constexpr uint32_t kMaxSplits = 128;

struct AttnDecodeArgs {
  AttnPagedArgs attn;  // n_tok is 1
  // With append: attn.q and k, v are what the projections gave; the kernel does what rope_append does, and the digests of
  // append_keeps_digest, but leaves q and k as they are.
  bool append = false;
  RopeAppendArgs rope;
  const uint32_t* n_tokens =
      nullptr;                   // device: position of the query, which counts instead of attn.pos; null: attn.pos does
  std::byte* scratch = nullptr;  // attn_decode_scratch_bytes
  uint32_t* counters = nullptr;  // [n_kv_heads] zero before and after
  unsigned long long* pages_attended = nullptr;  // += the pages listed; null: not wanted
  // With stamps: what page_stamp would do afterwards, with page_mass; `now` is the query's position + 1, whatever stamp.now says. Else the op is needed.
  bool stamps = false;
  PageStampArgs stamp;
  bool overlap = false;
};

Status attn_decode(OpContext& cx, const AttnDecodeArgs& a);

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes);

// Whether `stamps` can be set for this call: the rule needs no ranking, and all query heads of a KV head are in one block.
bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp);

// Head sizes that the kernel is made for.
inline bool attn_decode_has(uint32_t head_dim) { return head_dim == 64 || head_dim == 128; }

}  // namespace weir::cuda
