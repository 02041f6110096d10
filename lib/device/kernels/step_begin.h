// The kernel step_begin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels/add_left.h"
#include "kv/page_events.h"
#include "kv/step_state.h"
#include "kv/tables.h"
#include "ops/step_rules.h"
#include "ops/types.h"

namespace weir::device {

// The beginning of a decode step: evicts the pages that the policy's rules select, opens a page in every stream where
// position n_tokens is the first of a page, counts the token in the pages' `len`, and computes the RoPE factors cos_sin
// [rope_dim / 2, 2] of position n_tokens for each rotation of the model. step_end increments n_tokens itself.
struct StepBeginArgs {
  KvTables tables;
  StepRules rules;
  StepState* state;
  const double* angles;  // [n_rotations, rope_dim / 2] radians per position
  double magnitude[kMaxRotations];
  uint32_t rope_dim, n_rotations;
  uint32_t stride;  // from one rotation to the next in cos_sin and cos_sin_sink
  float* cos_sin;
  float* cos_sin_sink;   // null unless the rules have in_cache_pos
  uint32_t* counter;     // zero before and after
  PageEventRing events;  // in host memory
  // With recall: where copies are, which rows have their pages in the pool, and the digests, each of all layers by row.
  const uint32_t* raw_index = nullptr;
  uint32_t* resident = nullptr;  // [n_streams, resident_words(max_capacity)] one bit per row
  uint32_t max_capacity = 0;
  uint16_t* digests = nullptr;
  uint32_t digest_elements = 0;
  LeftAt left;  // of pages that a window has passed, the tokens are added
};

}  // namespace weir::device
