// The op history_begin: what attention learns from the end of a prompt.
#pragma once

#include <cstdint>

#include "ops/history.h"
#include "ops/types.h"

namespace weir {

// Writes a layer's tables from the last query rows of a prompt: a steady_sum of their attention weights, each row's
// over the tokens that are no sinks. Fewer rows than HistoryRules::n_rows leave a part of what was learned before. Adds
// up keys and values that are not summed yet.
struct HistoryBeginArgs {
  const float* q;  // [n_rows, n_heads, head_dim]
  KvView kv;       // as in AttnHistoryArgs
  uint32_t n_rows, n_heads;
  uint32_t pos;  // position of the first row; the last row is the last token
  float scale, soft_cap;
  HistoryView history;
  HistoryRules rules;
  uint32_t candidates;  // as HistorySize::candidates
};

}  // namespace weir
