// RaaS stamping, defined: a page's rank is the number of ranked pages that come before it.
// The ranked pages are the unpinned sealed pages, or with rank_all every page. A NaN weight ranks last.
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1), sec.
// 3.2; docs/algorithms.md, "RaaS".
#include <algorithm>
#include <cmath>

#include "ops/page_stamp.h"

namespace weir::ref {
namespace {

// W of the page at index `place` of the weights: the mean (kTopR) or maximum (kAlpha) over the heads of the group.
float group_weight(const PageStampArgs& a, uint32_t kv_head, uint32_t place) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const float* weight = a.weight + size_t{kv_head} * group * a.capacity + place;
  float w = weight[0];
  for (size_t g = 1; g < group; ++g) {
    const float next = weight[g * a.capacity];
    w = stamps_by_threshold(a.rule) ? std::max(w, next) : w + next;
  }
  return stamps_by_threshold(a.rule) ? w : w / static_cast<float>(group);
}

bool is_ranked(const PageStampArgs& a, const uint32_t* flags, uint32_t row, uint32_t n) {
  return a.rank_all || (row + 1 < n && (flags[row] & kPageStays) == 0);
}

// Whether page x comes before page y: it has more weight or, with equal weights, the lower row.
bool comes_before(const float* score, uint32_t x, uint32_t y) {
  const float wx = std::isnan(score[x]) ? -INFINITY : score[x];
  const float wy = std::isnan(score[y]) ? -INFINITY : score[y];
  return wx > wy || (wx == wy && x < y);
}

}  // namespace

Status page_stamp(OpContext&, const PageStampArgs& a) {
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
    const size_t table = size_t{kv_head} * a.capacity;
    const uint32_t* flags = a.flags + table;
    float* score = a.last_score + table;
    const uint32_t n = a.n_pages[kv_head];
    uint32_t n_ranked = 0;
    const uint32_t n_listed = a.select != nullptr ? a.n_select[kv_head] : n;
    std::fill(score, score + n, 0.0f);
    for (uint32_t place = 0; place < n_listed; ++place)
      score[a.select != nullptr ? a.select[table + place] : place] = group_weight(a, kv_head, place);
    for (uint32_t row = 0; row < n; ++row) {
      n_ranked += is_ranked(a, flags, row, n) ? 1u : 0u;
    }
    const auto n_best = static_cast<uint32_t>(std::ceil(a.r * static_cast<float>(n_ranked)));
    for (uint32_t row = 0; row < n; ++row) {
      bool hit = row + 1 == n;
      if (stamps_by_threshold(a.rule)) {
        hit = hit || score[row] > a.alpha;
      } else if (is_ranked(a, flags, row, n)) {
        uint32_t rank = 0;
        for (uint32_t other = 0; other < n; ++other)
          rank += is_ranked(a, flags, other, n) && comes_before(score, other, row) ? 1u : 0u;
        hit = hit || rank < n_best;
      }
      if (hit) a.hit(table + row, a.now);
    }
  }
  return {};
}

}  // namespace weir::ref
