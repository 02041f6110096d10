// The lists of the tables of attention's history, for the references: by a scan of whole tables.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "ops/history.h"

namespace weir::ref {

// Lists and floor of a table as its entries say.
inline void list_table(const HistoryView& view, uint32_t head, uint32_t kind, uint32_t n, const HistoryRules& rules,
                uint32_t target) {
  HistoryTable& t = view.heads[head].table[kind];
  const float* entries = view.entries_of(head, kind);
  std::vector<float> above;
  for (uint32_t i = 0; i < n; ++i) {
    if (entries[i] > t.floor) above.push_back(entries[i]);
  }
  if (rules.by_threshold) {
    const float threshold = threshold_of(rules, view.heads[head], kind, n);
    if (t.floor > threshold || t.floor < kCutThreshold * threshold) t.floor = kListedThreshold * threshold;
  } else if (above.size() > longest_list(target)) {
    std::nth_element(above.begin(), above.begin() + target, above.end(), std::greater<>());
    t.floor = above[target];
  }
  t.n_list = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (entries[i] > t.floor) view.list_of(head, kind)[t.n_list++] = i;
  }
}

inline void relist(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, double by_head) {
  const HeadHistory before = view.heads[head];  // the targets do not depend on the other table's list
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
    list_table(view, head, kind, n, rules, list_target(rules, before, kind, n, by_head));
}

}  // namespace weir::ref
