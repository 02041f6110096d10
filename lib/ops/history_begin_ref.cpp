// The tables of attention's history after a prompt, defined: the weights of its last rows, in f64.
// Paper: LFPS, arXiv:2506.15704; docs/algorithms.md, "LFPS".
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/history_begin.h"
#include "ops/history_lists_ref.h"
#include "ops/history_sums.h"

namespace weir::ref {
namespace {

// One query row of one head.
struct Row {
  const HistoryBeginArgs& a;
  uint32_t head, row;

  const float* q() const { return a.q + (size_t{row} * a.n_heads + head) * a.kv.head_dim; }
  uint32_t n_seen() const {  // tokens behind the sinks
    const uint32_t end = a.pos + row + 1;
    return end - std::min(end, a.rules.n_sink);
  }
  double logit(uint32_t token) const {
    const uint32_t pos = token + a.rules.n_sink, kv_head = head / (a.n_heads / a.kv.n_kv_heads);
    const auto keys = a.kv.stored_keys_of(kv_head, pos / kPageTokens);
    double dot = 0.0;
    for (size_t i = 0; i < a.kv.head_dim; ++i) dot += double{q()[i]} * double{load_element(keys, pos % kPageTokens, i)};
    if (std::isnan(dot)) return -std::numeric_limits<double>::infinity();
    dot *= a.scale;
    return a.soft_cap == 0.0f ? dot : a.soft_cap * std::tanh(dot / a.soft_cap);
  }
};

float spread_of(const Row& row, const double* logits) {
  double square = 0.0, mean = 0.0, variance = 0.0;
  for (size_t i = 0; i < row.a.kv.head_dim; ++i) square += double{row.q()[i]} * row.q()[i];
  for (uint32_t i = 0; i < row.n_seen(); ++i) mean += logits[i] / row.n_seen();
  for (uint32_t i = 0; i < row.n_seen(); ++i) variance += (logits[i] - mean) * (logits[i] - mean) / row.n_seen();
  return square > 0.0 && std::isfinite(variance) ? static_cast<float>(variance / square) : 0.0f;
}

void add_row(const Row& row, double of_rows, double* logits, float* by_position, float* by_distance, float& spread) {
  const uint32_t n = row.n_seen();
  if (n == 0) return;
  for (uint32_t token = 0; token < n; ++token) logits[token] = row.logit(token);
  const double high = *std::max_element(logits, logits + n);
  double sum = 0.0;
  for (uint32_t token = 0; token < n; ++token) sum += std::exp(logits[token] - high);
  spread = 0.0f;
  if (!std::isfinite(sum)) return;  // a row that is no number teaches nothing
  for (uint32_t token = 0; token < n; ++token) {
    const double share = std::exp(logits[token] - high) / sum;
    const auto weight = static_cast<float>(of_rows * steady_sum(row.a.rules) / row.a.n_rows * share);
    by_position[token] += weight;
    by_distance[n - 1 - token] += weight;
  }
  spread = spread_of(row, logits);
}

uint32_t count_listed(const HistoryView& view, uint32_t kv_head, uint32_t group, uint32_t n, bool* is) {
  std::fill_n(is, n, false);
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      const uint32_t* list = view.list_of(head, kind);
      for (uint32_t i = 0; i < view.heads[head].table[kind].n_list; ++i)
        is[kind == kByPosition ? list[i] : n - 1 - list[i]] = true;
    }
  }
  return static_cast<uint32_t>(std::count(is, is + n, true));
}

// Shortens the lists of a group until they leave room for neighbours.
void fit_lists(const HistoryBeginArgs& a, const HistoryScratch& m, uint32_t kv_head, uint32_t group, uint32_t n) {
  float& fill = a.history.fill[kv_head];
  fill = max_fill(group);
  const float room = kListedHigh * static_cast<float>(a.candidates);
  while (!a.rules.by_threshold && fill > min_fill() &&
         static_cast<float>(count_listed(a.history, kv_head, group, n, m.candidate)) > room) {
    fill = std::max(fill / kFitStep, min_fill());
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      relist(a.history, head, n, a.rules, listed_by_head(fill, a.candidates, group), m.above);
  }
}

}  // namespace

Status history_begin(OpContext& cx, const HistoryBeginArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads, end = a.pos + a.n_rows;
  const uint64_t tokens = uint64_t{a.history.capacity} + a.rules.n_sink;
  if (history_scratch_bytes(tokens, group, a.kv.head_dim) > cx.scratch_bytes)
    return fail(WEIR_ERR_INTERNAL, "history_begin: too little scratch");
  Arena arena(cx.scratch, cx.scratch_bytes);
  const HistoryScratch m = lay_out_history(arena, tokens, group, a.kv.head_dim);
  const uint32_t n = end - std::min(end, a.rules.n_sink);
  for (uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head)
    take_tokens(a.kv, a.history, kv_head, group, a.rules.n_sink, end);
  for (uint32_t head = 0; head < a.n_heads; ++head) {
    HeadHistory& h = a.history.heads[head];
    float* entries[] = {a.history.entries_of(head, kByPosition), a.history.entries_of(head, kByDistance)};
    const double left[] = {left_of(a.rules, h, kByPosition, a.n_rows), left_of(a.rules, h, kByDistance, a.n_rows)};
    const double of_rows = part_of_rows(a.rules, left[kByPosition], a.n_rows);
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      for (uint32_t i = 0; i < n; ++i)
        entries[kind][i] = left[kind] > 0.0 ? static_cast<float>(left[kind] * entries[kind][i]) : 0.0f;
    }
    h = {};
    for (uint32_t row = 0; row < a.n_rows; ++row)
      add_row({a, head, row}, of_rows, m.logit, entries[kByPosition], entries[kByDistance], h.spread);
    for (uint32_t kind = 0; n > 0 && kind < kHistoryKinds; ++kind) sum_table(h.table[kind], entries[kind], n);
    if (n > 0) relist(a.history, head, n, a.rules, listed_by_head(max_fill(group), a.candidates, group), m.above);
  }
  for (uint32_t kv_head = 0; n > 0 && kv_head < a.kv.n_kv_heads; ++kv_head) fit_lists(a, m, kv_head, group, n);
  return {};
}

}  // namespace weir::ref
