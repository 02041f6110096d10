// The op soft_cap: output logits under a soft cap; and what soft caps are.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// A logit under a soft cap; 0: none.
inline float soft_capped(float logit, float cap) { return cap == 0.0f ? logit : cap * std::tanh(logit / cap); }

// Output logits under a soft cap, in place: x = cap * tanh(x / cap).
struct SoftCapArgs {
  float* x;  // in/out [n]
  uint32_t n;
  float cap;  // not 0
};

}  // namespace weir
