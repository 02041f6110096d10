// Top-k page selection: the scores of a group in vectorised passes, then the best pages in time linear in their number.
// A KV head is one unit of work.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.3; docs/algorithms.md, "How the heads of a group agree" and
// "Ties and determinism".
#include "cpu/page_select.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/memory.h"
#include "cpu/simd_targets.h"
#include "cpu/top_keys.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/page_select.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Combines one head's scaled estimates x[0..n) with the group's score: to = log softmax(x) for the first head, then the
// larger of the two or the logarithm of their sum. n is a whole number of vectors, padded with -inf.
void add_head(const float* HWY_RESTRICT x, size_t n, bool first, bool max, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto none = hn::Set(df, kNone);
  auto high = none;
  for (size_t i = 0; i < n; i += lanes) high = hn::Max(high, hn::Load(df, x + i));
  const float top = hn::GetLane(hn::MaxOfLanes(df, high));
  auto sum = hn::Zero(df);
  const auto base = hn::Set(df, top > kNone ? top : 0.0f);
  for (size_t i = 0; i < n; i += lanes) sum = hn::Add(sum, hn::Exp(df, hn::Sub(hn::Load(df, x + i), base)));
  const float total = hn::GetLane(hn::SumOfLanes(df, sum));
  const auto lse = hn::Set(df, total > 0.0f ? top + std::log(total) : 0.0f);
  for (size_t i = 0; i < n; i += lanes) {
    const auto log_p = hn::Sub(hn::Load(df, x + i), lse);
    if (first) {
      hn::Store(log_p, df, to + i);
      continue;
    }
    const auto before = hn::Load(df, to + i);
    const auto more = hn::Max(before, log_p), less = hn::Min(before, log_p);
    const auto both = hn::Add(more, hn::Log1p(df, hn::Exp(df, hn::Sub(less, more))));
    hn::Store(max ? more : hn::IfThenElse(hn::Eq(less, none), more, both), df, to + i);
  }
}

// The same, with estimates in standard deviations from the head's mean.
void add_head_z(const float* HWY_RESTRICT x, size_t n, bool first, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto none = hn::Set(df, kNone);
  auto sum = hn::Zero(df), count = hn::Zero(df), square = hn::Zero(df);
  for (size_t i = 0; i < n; i += lanes) {
    const auto v = hn::Load(df, x + i);
    const auto is_number = hn::Gt(v, none);
    sum = hn::Add(sum, hn::IfThenElseZero(is_number, v));
    count = hn::Add(count, hn::IfThenElseZero(is_number, hn::Set(df, 1.0f)));
  }
  const float n_numbers = std::max(1.0f, hn::GetLane(hn::SumOfLanes(df, count)));
  const auto mean = hn::Set(df, hn::GetLane(hn::SumOfLanes(df, sum)) / n_numbers);
  for (size_t i = 0; i < n; i += lanes) {
    const auto v = hn::Load(df, x + i);
    const auto away = hn::IfThenElseZero(hn::Gt(v, none), hn::Sub(v, mean));
    square = hn::MulAdd(away, away, square);
  }
  const float variance = hn::GetLane(hn::SumOfLanes(df, square)) / n_numbers;
  const auto inverse = hn::Set(df, variance > 0.0f ? 1.0f / std::sqrt(variance) : 0.0f);
  for (size_t i = 0; i < n; i += lanes) {
    const auto v = hn::Load(df, x + i);
    const auto z = hn::IfThenElse(hn::Gt(v, none), hn::Mul(hn::Sub(v, mean), inverse), none);
    hn::Store(first ? z : hn::Max(hn::Load(df, to + i), z), df, to + i);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(add_head);
HWY_EXPORT(add_head_z);

// Scores (pages times query heads) up to which the calling thread does all of the work.
constexpr size_t kSerialScores = 2048;
constexpr uint32_t kPad = 16;  // floats of the widest vector

struct Scratch {
  float* x;       // [pages, padded] of one head
  float* group;   // [pages, padded] of the group
  uint32_t* key;  // [pages, padded]
};
constexpr size_t kScratchParts = 3;

uint64_t scratch_stride(uint32_t capacity) { return align_up(uint64_t{capacity}, kPad) * sizeof(float); }

bool competes(const PageSelectArgs& a, const uint32_t* flags, uint32_t row) {
  return a.candidate_flags == 0 || (flags[row] & a.candidate_flags) != 0;
}

// x = scaled estimates of one head, -inf for rows that do not compete and for the last.
void take_scores(const PageSelectArgs& a, const uint32_t* flags, const float* score, uint32_t n, float scale,
                 float* x) {
  for (uint32_t row = 0; row + 1 < n; ++row) {
    const float s = std::isnan(score[row]) ? -INFINITY : score[row];
    x[row] = competes(a, flags, row) ? scale * s : -INFINITY;
  }
  for (uint32_t row = n - 1; row < align_up(uint64_t{n}, kPad); ++row) x[row] = -INFINITY;
}

void score_group(const PageSelectArgs& a, uint32_t kv_head, const Scratch& s, float* to) {
  const uint32_t n = a.n_pages[kv_head], group = a.n_heads / a.n_kv_heads;
  const auto n_padded = align_up(uint64_t{n}, kPad);
  const uint32_t* flags = a.flags + size_t{kv_head} * a.capacity;
  for (uint32_t g = 0; g < group; ++g) {
    const bool is_first = g == 0;
    const auto take = [&](float scale) {
      take_scores(a, flags, a.score + (size_t{kv_head} * group + g) * a.capacity, n, scale, s.x);
    };
    switch (a.agg) {
      case AggMode::kSumProb:
      case AggMode::kMaxProb:
        take(a.scale);
        HWY_DYNAMIC_DISPATCH(add_head)(s.x, n_padded, is_first, a.agg == AggMode::kMaxProb, s.group);
        break;
      case AggMode::kMaxZ:
        take(1.0f);
        HWY_DYNAMIC_DISPATCH(add_head_z)(s.x, n_padded, is_first, s.group);
        break;
      case AggMode::kMaxRaw:
        take(1.0f);
        for (uint32_t row = 0; row < n; ++row) s.group[row] = is_first ? s.x[row] : std::max(s.group[row], s.x[row]);
        break;
      case AggMode::kMeanRaw:
      case AggMode::kQHead:
        take(1.0f);
        for (uint32_t row = 0; row < n; ++row) s.group[row] = is_first ? s.x[row] : s.group[row] + s.x[row];
        break;
    }
  }
  const bool mean = agg_is_mean(a.agg);
  for (uint32_t row = 0; row < n; ++row) {
    const bool scored = row + 1 < n && competes(a, flags, row);
    to[row] = !scored ? 0.0f : mean ? s.group[row] / static_cast<float>(group) : s.group[row];
  }
}

void list_pages(const PageSelectArgs& a, uint32_t kv_head, const float* score, const Scratch& s, uint32_t list) {
  const uint32_t n = a.n_pages[kv_head];
  const uint32_t* flags = a.flags + size_t{kv_head} * a.capacity;
  uint32_t n_forced = 0, n_free = 0;
  for (uint32_t row = 0; row < n; ++row) {
    const bool forced = row + 1 == n || row < a.n_sink_pages || (flags[row] & kPageKept) != 0;
    const bool competing = competes(a, flags, row);
    n_forced += competing && forced ? 1u : 0u;
    n_free += competing && !forced ? 1u : 0u;
    s.key[row] = !competing || forced ? UINT32_MAX : order_key(score[row]);  // UINT32_MAX: always listed
  }
  const uint32_t n_best = std::min(n_free, a.budget - std::min(a.budget, n_forced)) + (n - n_free);
  uint32_t* select = a.select + size_t{list} * a.capacity;
  uint32_t count = 0;
  for_best(s.key, n, n_best, [&](uint32_t row) { select[count++] = row; });
  a.n_select[list] = count;
}

void select_stream(const PageSelectArgs& a, uint32_t kv_head, const Scratch& s) {
  const uint32_t n = a.n_pages[kv_head], group = a.n_heads / a.n_kv_heads;
  if (n == 0) {
    for (uint32_t g = 0; g < (a.agg == AggMode::kQHead ? group : 1); ++g)
      a.n_select[a.agg == AggMode::kQHead ? kv_head * group + g : kv_head] = 0;
    return;
  }
  float* score = a.group_score + size_t{kv_head} * a.capacity;
  score_group(a, kv_head, s, score);
  if (a.agg != AggMode::kQHead) return list_pages(a, kv_head, score, s, kv_head);
  for (uint32_t g = 0; g < group; ++g) {
    const uint32_t head = kv_head * group + g;
    list_pages(a, kv_head, a.score + size_t{head} * a.capacity, s, head);
  }
}

}  // namespace

uint64_t page_select_scratch_bytes(const OpShapes& shapes) {
  return shapes.n_threads * kScratchParts * align_up(scratch_stride(shapes.max_pages), kCacheLine);
}

Status page_select(OpContext& cx, const PageSelectArgs& a) {
  const uint64_t stride = align_up(scratch_stride(a.capacity), kCacheLine);
  const auto scratch = [&](size_t worker) {
    std::byte* at = cx.scratch + worker * kScratchParts * stride;
    return Scratch{reinterpret_cast<float*>(at), reinterpret_cast<float*>(at + stride),
                   reinterpret_cast<uint32_t*>(at + 2 * stride)};
  };
  size_t n_scores = 0;
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head)
    n_scores += size_t{a.n_pages[kv_head]} * (a.n_heads / a.n_kv_heads);
  if (n_scores <= kSerialScores) {
    for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) select_stream(a, kv_head, scratch(0));
    return {};
  }
  cx.pool->parallel_for(a.n_kv_heads, [&](size_t kv_head, size_t worker) {
    select_stream(a, static_cast<uint32_t>(kv_head), scratch(worker));
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
