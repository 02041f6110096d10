// The kernel rope_append_at.
#pragma once

#include <cstdint>

#include "ops/rope_append.h"

namespace weir::device {

// rope_append whose position is in device memory.
struct RopeAppendAtArgs {
  RopeAppendArgs op;
  const uint32_t* n_tokens;
  bool overlap;
};

}  // namespace weir::device
