// How the attention masses of a step become page scores, defined.
// Papers: Zhang et al., "H2O", arXiv:2306.14048, sec. 4 (kSum); Oren et al., "Transformers are Multi-State RNNs",
// arXiv:2401.06104, sec. 4 (kLatestLayer; kLatestGroup is the same for one group); Adnan et al., "Keyformer",
// arXiv:2403.09054, sec. 3 (kNoisy, over pages); Liu et al., "Scissorhands", arXiv:2305.17118, sec. 4 (kHits, over
// pages).
#include <cmath>

#include "ops/page_accumulate.h"
#include "ops/step_rules.h"

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

// Adds the group's softmaxes of noisy logits; a head that has no mass adds nothing.
void add_noisy(const PageAccumulateArgs& a, uint32_t kv_head) {
  const uint32_t group = a.n_heads / a.n_kv_heads, n = a.n_pages[kv_head];
  const size_t table = size_t{kv_head} * a.capacity;
  const float tau = tau_at(a.options, *a.n_tokens + 1);
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const auto weight = [&](uint32_t row) {
      return noisy_weight(a.weight[size_t{head} * a.capacity + row],
                          noise_factor(a.options.seed, a.first_stream + kv_head, a.first_pos[table + row]), tau);
    };
    double sum = 0.0;
    for (uint32_t row = 0; row < n; ++row) sum += double{weight(row)};
    for (uint32_t row = 0; row < n && sum > 0.0; ++row)
      a.score[table + row] += static_cast<float>(double{weight(row)} / sum);
  }
}

// Whether a head of the group gives the page at least as much as its tokens have on average of all so far.
bool is_hit(const PageAccumulateArgs& a, uint32_t kv_head, uint32_t row) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const auto n = static_cast<float>(*a.n_tokens + 1),
             len = static_cast<float>(a.len[size_t{kv_head} * a.capacity + row]);
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    if (a.weight[size_t{head} * a.capacity + row] * n >= len) return true;
  }
  return false;
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
        case AccumulateRule::kHits:
          a.score[at] = a.options.keep * a.score[at] + (is_hit(a, kv_head, row) ? 1.0f : 0.0f);
          break;
        case AccumulateRule::kNoisy:
          break;
      }
    }
    if (a.rule == AccumulateRule::kNoisy) add_noisy(a, kv_head);
    if (a.mark != nullptr && a.n_pages[kv_head] == a.capacity) mark_least(a, kv_head);
  }
  return {};
}

}  // namespace weir::ref
