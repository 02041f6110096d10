// The kernel attn_decode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attn_paged.h"
#include "ops/page_stamp.h"
#include "ops/rope_append.h"

namespace weir::device {

// Attention of one query row over KV pages. One launch rotates the query, appends the new key and value, attends the
// pages, and computes page masses and the policy's observation.
struct AttnDecodeArgs {
  AttnPagedArgs attn;  // n_tok is 1
  // With append attn.q, rope.k and rope.v are the outputs of the projections. The kernel does what rope_append does,
  // and updates the digests that append_keeps_digest names, but leaves q and k in memory unchanged.
  bool append = false;
  RopeAppendArgs rope;
  // Where pages have rotated values (rotates_values): append rotates the value, and with rotates_back the output
  // is rotated back, which sparse_layer cannot do.
  bool rotates_back = false;
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

}  // namespace weir::device
