// The op embed: rows of the embedding table.
#pragma once

#include <cstdint>

#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir {

// x[i] = row tokens[i] of the embedding table, decoded, times `scale`.
struct EmbedArgs {
  float* x;               // out [n_tok, n_cols]
  Weight table;           // [vocab_size, d_model]
  const int32_t* tokens;  // [n_tok]
  uint32_t n_tok;
  float scale = 1.0f;
};

}  // namespace weir
