// What a decode step on a device leaves in memory that both sides see: its state, and what is asked about its logits.
#pragma once

#include <cstdint>

namespace weir {

// Maximum number of logits that DeviceSession::top_logits returns. Few samplers look at more, and for them copying all
// logits is not much slower.
inline constexpr uint32_t kMaxTopLogits = 1024;

// Parts of equal length in which the sum over a vocabulary is taken, so that it does not depend on who takes it; the
// last ones of a small vocabulary may be short or empty.
inline constexpr uint32_t kLogitParts = 64;
constexpr uint32_t logit_part_rows(uint32_t vocab_size) { return (vocab_size + kLogitParts - 1) / kLogitParts; }

// Such a part: its largest logit, and the sum of exp(logit - best), to which those that equal it give 1 also where
// they are infinite. NaN counts as -inf. An empty part has -inf and 0.
struct LogitPart {
  float best, sum;
};

// Words of a mask with a bit for each token.
constexpr uint32_t mask_words(uint32_t vocab_size) { return (vocab_size + 31) / 32; }

// The state of decoding, in device memory. The host gets a copy after every step.
struct StepState {
  int32_t next_token;             // the argmax of the logits, the lowest id on a tie; -1: all are NaN
  uint32_t n_tokens;              // committed
  uint64_t pages_evicted;         // also the index of the next page's event
  uint64_t pages_evicted_before;  // before the step
  uint64_t prompt_pages_evicted;
  uint64_t pages_resident;
  uint64_t pages_resident_max;
  uint64_t pages_attended;  // by the step
  uint32_t n_without_room;  // streams that were full when a page had to open; not 0: the policy's rules are wrong
  // With recall. A step is late if the host did not bring a page in time, or could not; it is then not committed.
  uint32_t is_late;
  uint64_t pages_cold, pages_lost;
  uint64_t pages_recalled;
  uint32_t recurrent;  // LayerState::current; the other one after each step that is committed
  uint32_t unused;     // the size is that of whole 64-bit numbers
};

}  // namespace weir
