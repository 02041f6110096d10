// New tokens of attention's history: sums of the keys and values behind the sinks, of which it needs the means, and
// entries of the tables.
#pragma once

#include <algorithm>

#include "ops/types.h"

namespace weir {

// Adds keys and values that are not summed yet, up to position `end`.
inline void sum_tokens(const KvView& kv, const HistoryView& view, uint32_t kv_head, uint32_t n_sink, uint32_t end) {
  const size_t d = kv.head_dim;
  double* sums = view.sums + size_t{kv_head} * 2 * d;
  for (uint32_t pos = std::max(view.n_summed[kv_head], n_sink); pos < end; ++pos) {
    const auto keys = kv.stored_keys_of(kv_head, pos / kPageTokens),
               values = kv.stored_values_of(kv_head, pos / kPageTokens);
    for (size_t i = 0; i < d; ++i) {
      sums[i] += double{load_element(keys, pos % kPageTokens, i)};
      sums[d + i] += double{load_element(values, pos % kPageTokens, i)};
    }
  }
  view.n_summed[kv_head] = std::max(view.n_summed[kv_head], end);
}

// Entries of the tables for the tokens up to position `end`.
inline void open_entries(const HistoryView& view, uint32_t kv_head, uint32_t group, uint32_t n_sink, uint32_t end) {
  const uint32_t n = end - std::min(end, n_sink);
  uint32_t& known = view.n_known[kv_head];
  for (uint32_t head = kv_head * group; known < n && head < (kv_head + 1) * group; ++head) {
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
      std::fill(view.entries_of(head, kind) + known, view.entries_of(head, kind) + n, 0.0f);
  }
  known = std::max(known, n);
}

// All that is due before the tables are used with the tokens up to position `end`.
inline void take_tokens(const KvView& kv, const HistoryView& view, uint32_t kv_head, uint32_t group, uint32_t n_sink,
                        uint32_t end) {
  sum_tokens(kv, view, kv_head, n_sink, end);
  open_entries(view, kv_head, group, n_sink, end);
}

}  // namespace weir
