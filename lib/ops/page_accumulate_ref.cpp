// How the attention masses of a step become page scores, defined.
// Papers: Zhang et al., "H2O", arXiv:2306.14048, sec. 4 (kSum); Oren et al., "Transformers are Multi-State RNNs",
// arXiv:2401.06104, sec. 4 (kLatestLayer; kLatestGroup is the same for one group).

#include <cmath>

#include "ops/page_accumulate.h"

namespace weir::ref {
namespace {

void mark_least(const PageAccumulateArgs& a, uint32_t kv_head) {
  const size_t table = size_t{kv_head} * a.capacity;
  const auto score = [&](uint32_t row) { return std::isnan(a.score[table + row]) ? -INFINITY : a.score[table + row]; };
  const uint32_t n = a.n_pages[kv_head];
  uint32_t least = n;
  for (uint32_t row = 0; row + 1 < n; ++row) {
    if ((a.flags[table + row] & kPageStays) == 0 && (least == n || score(row) < score(least))) least = row;
  }
  if (least < n) ++a.mark[table + least];
}

}  // namespace

Status page_accumulate(OpContext&, const PageAccumulateArgs& a) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
    for (uint32_t row = 0; row < a.n_pages[kv_head]; ++row) {
      const size_t at = size_t{kv_head} * a.capacity + row;
      const auto sum_heads = [&](uint32_t first, uint32_t n_heads) {
        float sum = 0.0f;
        for (uint32_t head = first; head < first + n_heads; ++head) sum += a.weight[size_t{head} * a.capacity + row];
        return sum;
      };
      const auto mean_of_token = [&](uint32_t first, uint32_t n_heads) {
        return sum_heads(first, n_heads) / static_cast<float>(n_heads) / static_cast<float>(a.len[at]);
      };
      switch (a.rule) {
        case AccumulateRule::kSum:
          a.score[at] += sum_heads(kv_head * group, group);
          break;
        case AccumulateRule::kLatestGroup:
          a.score[at] = mean_of_token(kv_head * group, group);
          break;
        case AccumulateRule::kLatestLayer:
          a.score[at] = mean_of_token(0, a.n_heads);
          break;
      }
    }
    if (a.mark != nullptr && a.n_pages[kv_head] == a.capacity) mark_least(a, kv_head);
  }
  return {};
}

}  // namespace weir::ref
