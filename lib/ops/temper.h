// The op temper: queries that grow with their positions.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// Queries are multiplied by 1 + beta * log(1 + position / n_tokens), the quotient rounded down.
struct Temperature {
  float beta = 0.0f;      // 0: they stay as they are
  uint32_t n_tokens = 1;  // at least 1
  float at(uint32_t pos) const {
    return static_cast<float>(1.0 + double{beta} * std::log1p(static_cast<double>(pos / n_tokens)));
  }
};

struct TemperArgs {
  float* q;  // in/out [n_tok, width], before or after the rotation
  uint32_t n_tok, width;
  Temperature temperature;
  uint32_t pos;                      // of the first token
  const uint32_t* pos_at = nullptr;  // where that position is, in the memory that q is in; null: it is pos
};

}  // namespace weir
