// Top-k page selection, defined: a competing page's rank is the number of competing pages that come before it.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.3 and algorithm 1; how the heads of a group agree is our own
// (docs/algorithms.md, "How the heads of a group agree").
#include <algorithm>
#include <cmath>

#include "ops/page_select.h"

namespace weir::ref {
namespace {

struct Stream {
  const PageSelectArgs& a;
  uint32_t kv_head;

  uint32_t n() const { return a.n_pages[kv_head]; }
  uint32_t group() const { return a.n_heads / a.n_kv_heads; }
  uint32_t flags(uint32_t row) const { return a.flags[size_t{kv_head} * a.capacity + row]; }
  const float* score(uint32_t g) const { return a.score + (size_t{kv_head} * group() + g) * a.capacity; }
  bool competes(uint32_t row) const { return a.candidate_flags == 0 || (flags(row) & a.candidate_flags) != 0; }
  bool forced(uint32_t row) const { return row + 1 == n() || row < a.n_sink_pages || (flags(row) & kPageKept) != 0; }
  // The estimate of the last row is not read and takes no part in the softmax.
  bool scored(uint32_t row) const { return row + 1 < n() && competes(row); }
};

float number(float x) { return std::isnan(x) ? -INFINITY : x; }

// Log of the softmax over the scored rows of one head, for one row.
float log_probability(const Stream& s, uint32_t g, uint32_t row) {
  float high = -INFINITY, sum = 0.0f;
  for (uint32_t p = 0; p < s.n(); ++p)
    if (s.scored(p)) high = std::max(high, s.a.scale * number(s.score(g)[p]));
  if (high == -INFINITY) return -INFINITY;
  for (uint32_t p = 0; p < s.n(); ++p)
    if (s.scored(p)) sum += std::exp(s.a.scale * number(s.score(g)[p]) - high);
  return s.a.scale * number(s.score(g)[row]) - (high + std::log(sum));
}

// A row's estimate in standard deviations from the mean over the head's scored rows that have an estimate.
float deviation(const Stream& s, uint32_t g, uint32_t row) {
  if (number(s.score(g)[row]) == -INFINITY) return -INFINITY;
  double sum = 0.0, square = 0.0, count = 0.0;
  for (uint32_t p = 0; p < s.n(); ++p) {
    if (!s.scored(p) || number(s.score(g)[p]) == -INFINITY) continue;
    sum += double{s.score(g)[p]};
    count += 1.0;
  }
  const double mean = sum / count;
  for (uint32_t p = 0; p < s.n(); ++p) {
    if (!s.scored(p) || number(s.score(g)[p]) == -INFINITY) continue;
    square += (double{s.score(g)[p]} - mean) * (double{s.score(g)[p]} - mean);
  }
  return square > 0.0 ? static_cast<float>((double{s.score(g)[row]} - mean) / std::sqrt(square / count)) : 0.0f;
}

float log_sum(float x, float y) {
  const float more = std::max(x, y), less = std::min(x, y);
  return less == -INFINITY ? more : more + std::log1p(std::exp(less - more));
}

float group_score(const Stream& s, uint32_t row) {
  if (!s.scored(row)) return 0.0f;
  float total = 0.0f;
  for (uint32_t g = 0; g < s.group(); ++g) {
    const float raw = number(s.score(g)[row]);
    switch (s.a.agg) {
      case AggMode::kSumProb:
        total = g == 0 ? log_probability(s, g, row) : log_sum(total, log_probability(s, g, row));
        break;
      case AggMode::kMaxProb:
        total = g == 0 ? log_probability(s, g, row) : std::max(total, log_probability(s, g, row));
        break;
      case AggMode::kMaxZ:
        total = g == 0 ? deviation(s, g, row) : std::max(total, deviation(s, g, row));
        break;
      case AggMode::kMaxRaw:
        total = g == 0 ? raw : std::max(total, raw);
        break;
      case AggMode::kMeanRaw:
      case AggMode::kQHead:
        total = g == 0 ? raw : total + raw;
        break;
    }
  }
  return agg_is_mean(s.a.agg) ? total / static_cast<float>(s.group()) : total;
}

// The list of one stream, or of one head, by `score`, [n].
void list_pages(const Stream& s, const float* score, uint32_t list) {
  uint32_t n_forced = 0;
  for (uint32_t row = 0; row < s.n(); ++row) n_forced += s.competes(row) && s.forced(row) ? 1u : 0u;
  const uint32_t n_best = s.a.budget - std::min(s.a.budget, n_forced);
  uint32_t count = 0;
  for (uint32_t row = 0; row < s.n(); ++row) {
    bool listed = !s.competes(row) || s.forced(row);
    if (!listed) {
      uint32_t rank = 0;
      for (uint32_t p = 0; p < s.n(); ++p) {
        if (!s.competes(p) || s.forced(p)) continue;
        const float x = number(score[p]), y = number(score[row]);
        rank += x > y || (x == y && p < row) ? 1u : 0u;
      }
      listed = rank < n_best;
    }
    if (listed) s.a.select[size_t{list} * s.a.capacity + count++] = row;
  }
  s.a.n_select[list] = count;
}

}  // namespace

Status page_select(OpContext&, const PageSelectArgs& a) {
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
    const Stream s = {a, kv_head};
    float* score = a.group_score + size_t{kv_head} * a.capacity;
    for (uint32_t row = 0; row < s.n(); ++row) score[row] = group_score(s, row);
    if (a.agg != AggMode::kQHead) {
      list_pages(s, score, kv_head);
      continue;
    }
    for (uint32_t g = 0; g < s.group(); ++g) list_pages(s, s.score(g), kv_head * s.group() + g);
  }
  return {};
}

}  // namespace weir::ref
