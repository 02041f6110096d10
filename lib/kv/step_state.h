// What a decode step on a device leaves in memory that both sides see.
#pragma once

#include <cstdint>

namespace weir {

// Logits that DeviceSession::top_logits gives at once, at most: samplers that look at more are few, and copying all logits is not much slower then.
inline constexpr uint32_t kMostTopLogits = 1024;

// What a decode step knows of itself, in device memory; the host has a copy of it after every step.
struct StepState {
  int32_t next_token;             // the largest logit's, the lowest id on a tie; -1: none is a number
  uint32_t n_tokens;              // committed
  uint64_t pages_evicted;         // also the index of the next page's event
  uint64_t pages_evicted_before;  // the step
  uint64_t prompt_pages_evicted;
  uint64_t pages_resident;
  uint64_t pages_resident_max;
  uint64_t pages_attended;  // of the step
  uint32_t n_without_room;  // streams that were full when a page had to open; not 0: the policy's rules are wrong
  uint32_t reserved;
};

}  // namespace weir
