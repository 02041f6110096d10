// What the references of attention's history share: scratch, and lists by a scan of whole tables.
#pragma once

#include <algorithm>
#include <functional>

#include "core/memory.h"
#include "ops/history.h"

namespace weir::ref {

struct HistoryScratch {
  double *logit, *share, *out;  // [tokens], [tokens], [head_dim]
  double* sink_share;           // [group]
  uint32_t *order, *chosen;     // [tokens]
  float* above;                 // [tokens]
  bool *candidate, *looks;      // [tokens], [group]
};
inline HistoryScratch lay_out_history(Arena& arena, uint64_t tokens, uint64_t group, uint64_t head_dim) {
  HistoryScratch s;
  s.logit = arena.take<double>(tokens);
  s.share = arena.take<double>(tokens);
  s.out = arena.take<double>(head_dim);
  s.sink_share = arena.take<double>(group);
  s.order = arena.take<uint32_t>(tokens);
  s.chosen = arena.take<uint32_t>(tokens);
  s.above = arena.take<float>(tokens);
  s.candidate = arena.take<bool>(tokens);
  s.looks = arena.take<bool>(group);
  return s;
}
uint64_t history_scratch_bytes(uint64_t tokens, uint64_t group, uint64_t head_dim);

// Lists and floor of a table as its entries say.
inline void list_table(const HistoryView& view, uint32_t head, uint32_t kind, uint32_t n, const HistoryRules& rules,
                       uint32_t target, float* above) {
  HistoryTable& t = view.heads[head].table[kind];
  const float* entries = view.entries_of(head, kind);
  uint32_t n_above = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (entries[i] > t.floor) above[n_above++] = entries[i];
  }
  if (rules.by_threshold) {
    const float threshold = threshold_of(rules, view.heads[head], kind, n);
    if (t.floor > threshold || t.floor < kCutThreshold * threshold) t.floor = kListedThreshold * threshold;
  } else if (n_above > longest_list(target)) {
    std::nth_element(above, above + target, above + n_above, std::greater<>());
    t.floor = above[target];
  }
  (void)view.list_above(head, kind, n);  // list_room has seen to it that they fit
}

inline void relist(const HistoryView& view, uint32_t head, uint32_t n, const HistoryRules& rules, double by_head,
                   float* above) {
  const HeadHistory before = view.heads[head];  // the targets do not depend on the other table's list
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
    list_table(view, head, kind, n, rules, list_target(rules, before, kind, n, by_head), above);
}

}  // namespace weir::ref
