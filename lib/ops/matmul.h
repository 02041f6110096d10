// The op matmul: up to three matrices over the same input.
#pragma once

#include <cstdint>

#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir {

// One output of a matmul: y = W x (+ bias), or y += W x (+ bias).
struct MatmulPart {
  Weight w;           // [n_rows, n_cols]
  const float* bias;  // [n_rows] or null
  float* y;           // [n_tok, n_rows], row-major
  bool accumulate;
};

// Up to three matrices applied to the same input in one parallel region (q, k and v).
struct MatmulArgs {
  MatmulPart part[3];
  uint32_t n_parts;
  const float* x;  // [n_tok, n_cols], shared by the parts; no y may overlap it
  uint32_t n_tok;
};

}  // namespace weir
