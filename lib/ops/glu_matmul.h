// The op glu_matmul: a gated product.
#pragma once

#include <cstdint>

#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir {

// y = activation(Wg x (+ bias)) * (Wu x (+ bias)).
struct GluMatmulArgs {
  float* y;         // out [n_tok, n_rows]
  Weight gate, up;  // [n_rows, n_cols], both of one type or of two
  const float* x;   // [n_tok, n_cols]
  uint32_t n_tok;
  Gate activation = Gate::kSilu;
  const float* gate_bias = nullptr;  // [n_rows] or null
  const float* up_bias = nullptr;
};

}  // namespace weir
