// The op rms_norm.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// y = x / sqrt(mean(x^2) + eps) * weight, row by row, or y += that. y may be x.
struct RmsNormArgs {
  float* y;             // out [n_tok, n]
  const float* x;       // [n_tok, n]
  const float* weight;  // [n]
  uint32_t n_tok, n;
  float eps;
  bool accumulate = false;
};

}  // namespace weir
