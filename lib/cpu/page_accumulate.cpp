// Accumulates attention masses as page scores: the reference's sums in the same order, head by head over rows so that
// the compiler vectorises. A few hundred numbers per stream are never worth a second thread. Where there is noise, each
// page's is computed once for the group.
#include "cpu/page_accumulate.h"

#include <cmath>

#include "ops/step_rules.h"

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

void count_hits(const PageAccumulateArgs& a, uint32_t kv_head, uint32_t group, uint32_t n, float* score) {
  const uint32_t* len = a.len + size_t{kv_head} * a.capacity;
  const auto tokens = static_cast<float>(*a.n_tokens + 1);
  for (uint32_t row = 0; row < n; ++row) {
    const float* weight = a.weight + size_t{kv_head} * group * a.capacity + row;
    bool hit = false;
    for (uint32_t g = 0; g < group; ++g) hit |= weight[size_t{g} * a.capacity] * tokens >= static_cast<float>(len[row]);
    score[row] = a.options.keep * score[row] + (hit ? 1.0f : 0.0f);
  }
}

// `factor` and `part` have room for `n` floats each.
void add_noisy(const PageAccumulateArgs& a, uint32_t kv_head, uint32_t group, uint32_t n, float* score, float* factor,
               float* part) {
  const uint32_t* first_pos = a.first_pos + size_t{kv_head} * a.capacity;
  const float tau = tau_at(a.options, *a.n_tokens + 1);
  for (uint32_t row = 0; row < n; ++row)
    factor[row] = noise_factor(a.options.seed, a.first_stream + kv_head, first_pos[row]);
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    double sum = 0.0;
    for (uint32_t row = 0; row < n; ++row) {
      part[row] = noisy_weight(a.weight[size_t{head} * a.capacity + row], factor[row], tau);
      sum += double{part[row]};
    }
    for (uint32_t row = 0; row < n && sum > 0.0; ++row) score[row] += static_cast<float>(double{part[row]} / sum);
  }
}

}  // namespace

uint64_t page_accumulate_scratch_bytes(const OpShapes& shapes) {
  return 2 * sizeof(float) * uint64_t{shapes.max_pages};
}

Status page_accumulate(OpContext& cx, const PageAccumulateArgs& a) {
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
      case AccumulateRule::kNoisy: {
        auto* factor = reinterpret_cast<float*>(cx.scratch);
        add_noisy(a, kv_head, group, n, score, factor, factor + n);
        break;
      }
      case AccumulateRule::kHits:
        count_hits(a, kv_head, group, n, score);
        break;
    }
    if (a.mark != nullptr && n == a.capacity) mark_least(a, size_t{kv_head} * a.capacity, n);
  }
  return {};
}

}  // namespace weir::cpu
