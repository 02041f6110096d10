// The kernel experts_step: the op experts in a decode step.
#pragma once

#include <cstdint>

#include "ops/experts.h"

namespace weir::device {

// One token of a decode step: the op's arguments, with a norm of x fused. x may be y.
struct ExpertsStepArgs {
  ExpertsArgs op;               // n_tok is 1
  const float* norm = nullptr;  // [d_model] weight of an RMS norm of x, or null
  float eps = 0.0f;
  uint32_t* counter = nullptr;  // zero before and after
  bool overlap = false;         // of the first kernel
};

}  // namespace weir::device
