// Attention of one query row over KV pages, for decode steps. One launch rotates the query, appends the new key and
// value, attends the pages in splits along the sequence, merges the splits, and computes page masses and the policy's
// observation.
#pragma once

#include "core/status.h"
#include "device/kernels.h"
#include "ops/table.h"

namespace weir::cuda {

using device::AttnDecodeArgs;

// Maximum number of splits of a stream's pages; the partial results have room for as many.
inline constexpr uint32_t kMaxSplits = 128;

Status attn_decode(OpContext& cx, const AttnDecodeArgs& a);

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes);

// Whether `stamps` can be set for this call: the rule needs no ranking, and one block has all query heads of a KV head.
bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp);

}  // namespace weir::cuda
