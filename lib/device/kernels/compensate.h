// The kernel compensate.
#pragma once

#include <cstdint>

#include "kv/left_sum.h"
#include "ops/attn_paged.h"

namespace weir::device {

// The compensation tokens of the streams with windows of their own (docs/algorithms.md, "RazorAttention"), after the
// attention `attn`: out, lse and page_mass become those of attention with one more key and value. `n_tokens` as in
// AttnDecodeArgs.
struct CompensateArgs {
  AttnPagedArgs attn;
  const uint32_t* n_tokens = nullptr;
  const LeftSum* sums = nullptr;  // of the layer's first such stream; and their values
  const float* values = nullptr;
};

}  // namespace weir::device
