// The best logits of a step, for samplers that look at no others.
#pragma once

#include "core/status.h"
#include "ops/ops.h"

namespace weir::cuda {

struct TopLogitsArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  uint32_t n;          // 1..min(kMostTopLogits, vocab_size)
  int32_t* ids;        // [n] host memory that the device writes to
  float* values;       // [n] the same
  std::byte* scratch;  // top_logits_scratch_bytes, 8-byte aligned
  uint32_t* counter;   // zero before and after
};
// The n best logits in descending order, the lower id first among equals. NaN counts as -inf and is written as -inf.
Status top_logits(OpContext& cx, const TopLogitsArgs& a);

uint64_t top_logits_scratch_bytes();

}  // namespace weir::cuda
