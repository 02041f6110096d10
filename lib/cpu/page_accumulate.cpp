// Accumulates attention masses as page scores: the reference's sums in the same order, head by head over rows so that
// the compiler vectorises. A few hundred numbers per stream are never worth a second thread.
#include "cpu/page_accumulate.h"

#include <cmath>

namespace weir::cpu {
namespace {

// to[row] = or += the sum of the weights of `n_heads` heads, added in order.
template <bool kAdd>
void add_heads(const PageAccumulateArgs& a, uint32_t first, uint32_t n_heads, uint32_t n, float* to) {
  for (uint32_t row = 0; row < n; ++row) {
    float sum = 0.0f;
    for (uint32_t head = first; head < first + n_heads; ++head) sum += a.weight[size_t{head} * a.capacity + row];
    to[row] = kAdd ? to[row] + sum : sum;
  }
}

// to[row] = the mean weight over `n_heads` heads, divided by the page's tokens.
void mean_of_heads(const PageAccumulateArgs& a, uint32_t kv_head, uint32_t first, uint32_t n_heads, uint32_t n,
                   float* to) {
  const uint32_t* len = a.len + size_t{kv_head} * a.capacity;
  add_heads<false>(a, first, n_heads, n, to);
  for (uint32_t row = 0; row < n; ++row) to[row] = to[row] / static_cast<float>(n_heads) / static_cast<float>(len[row]);
}

// Adds a mark to the page with the least score among those that may leave.
void mark_least(const PageAccumulateArgs& a, size_t table, uint32_t n) {
  uint32_t least = n;
  float min_score = 0.0f;
  for (uint32_t row = 0; row + 1 < n; ++row) {
    if ((a.flags[table + row] & kPageStays) != 0) continue;
    const float score = std::isnan(a.score[table + row]) ? -INFINITY : a.score[table + row];
    if (least == n || score < min_score) least = row, min_score = score;
  }
  if (least < n) ++a.mark[table + least];
}

}  // namespace

Status page_accumulate(OpContext&, const PageAccumulateArgs& a) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
    const uint32_t n = a.n_pages[kv_head];
    float* score = a.score + size_t{kv_head} * a.capacity;
    switch (a.rule) {
      case AccumulateRule::kSum:
        add_heads<true>(a, kv_head * group, group, n, score);
        break;
      case AccumulateRule::kLatestGroup:
        mean_of_heads(a, kv_head, kv_head * group, group, n, score);
        break;
      case AccumulateRule::kLatestLayer:
        mean_of_heads(a, kv_head, 0, a.n_heads, n, score);
        break;
    }
    if (a.mark != nullptr && n == a.capacity) mark_least(a, size_t{kv_head} * a.capacity, n);
  }
  return {};
}

}  // namespace weir::cpu
