// The kernels top_logits and read_logits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/step_state.h"

namespace weir::device {

// The n best logits in descending order, the lower id first among equals. NaN counts as -inf and is written as -inf.
// Tokens whose bit the mask lacks take no part; where fewer than n are left, the rest of `ids` is -1.
struct TopLogitsArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  uint32_t n;                      // 1..min(kMaxTopLogits, vocab_size)
  int32_t* ids;                    // [n] host memory that the device writes to
  float* values;                   // [n] the same
  std::byte* scratch;              // top_logits_scratch_bytes, 8-byte aligned
  uint32_t* counter;               // zero before and after
  const uint32_t* mask = nullptr;  // [mask_words(vocab_size)], or null: all tokens take part
};

// What log-probabilities and changes of logits need besides the best ones.
struct ReadLogitsArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  LogitPart* parts;       // [kLogitParts] host memory that the device writes to, or null
  const int32_t* tokens;  // [n_tokens] host memory that the device reads
  float* values;          // [n_tokens] host memory: the tokens' logits
  uint32_t n_tokens;
};

}  // namespace weir::device
