// The kernel page_stamp_at.
#pragma once

#include "kv/step_state.h"
#include "ops/page_stamp.h"

namespace weir::device {

// page_stamp in the step that `state` is about; nothing if it is late.
struct PageStampAtArgs {
  PageStampArgs op;
  const StepState* state;
};

}  // namespace weir::device
