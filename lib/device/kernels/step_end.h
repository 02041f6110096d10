// The kernel step_end.
#pragma once

#include <cstdint>

#include "kv/step_state.h"

namespace weir::device {

// The end of a step: commits it, and finds the greedy token.
struct StepEndArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  bool commit;  // whether the step's token counts, unless the step is late
  bool overlap = true;
  StepState* state;
  StepState* mailbox;        // host memory that the device writes to
  unsigned long long* best;  // zero before and after
  uint32_t* counter;         // zero before and after
};

}  // namespace weir::device
