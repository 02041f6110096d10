// Scores of pages from masses: the definition's sums in the same order, head by head over rows so that the compiler
// vectorises. Some hundred numbers a stream; never worth a second thread.
#include "cpu/page_accumulate.h"

namespace weir::cpu {
namespace {

// to[row] = or += the weights of `n_heads` heads, added in order.
template <bool kAdd>
void add_heads(const PageAccumulateArgs& a, uint32_t first, uint32_t n_heads, uint32_t n, float* to) {
  for (uint32_t row = 0; row < n; ++row) {
    float sum = 0.0f;
    for (uint32_t head = first; head < first + n_heads; ++head) sum += a.weight[size_t{head} * a.capacity + row];
    to[row] = kAdd ? to[row] + sum : sum;
  }
}

}  // namespace

Status page_accumulate(OpContext&, const PageAccumulateArgs& a) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const bool layer = a.rule == AccumulateRule::kLatestLayer;
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
    const size_t table = size_t{kv_head} * a.capacity;
    const uint32_t n = a.n_pages[kv_head], n_heads = layer ? a.n_heads : group;
    float* score = a.score + table;
    if (a.rule == AccumulateRule::kSum) {
      add_heads<true>(a, kv_head * group, group, n, score);
      continue;
    }
    add_heads<false>(a, layer ? 0 : kv_head * group, n_heads, n, score);
    for (uint32_t row = 0; row < n; ++row)
      score[row] = score[row] / static_cast<float>(n_heads) / static_cast<float>(a.len[table + row]);
  }
  return {};
}

}  // namespace weir::cpu
