// Estimates of q.k over pages, vectorised over the elements of a head; up to four query heads share what is read of a
// digest. Memory bandwidth is the limit: every digest is read once per step. Sums are f32, one per lane.
// Papers: Tang et al., "Quest", arXiv:2406.10774, sec. 3.2; Chen et al., "ArkVale", NeurIPS 2024, sec. 5.2.
#include "cpu/page_score.h"

#include <algorithm>
#include <cmath>

#include "cpu/page_sketch.h"
#include "cpu/simd_targets.h"
#include "quant/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/page_score.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/simd-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

constexpr uint32_t kPagesAhead = 6;  // 3 KiB with 128 channels
constexpr size_t kLineElements = 64 / sizeof(uint16_t);

// The formulas of an estimate. kBound: sum of max(q_i * first_i, q_i * second_i). kBall: q.centre + radius * |q|.
// kMoments: q.mean + spread * |q * std|.
enum class Form { kBound, kBall, kMoments };

template <Form kForm, class V>
HWY_INLINE void add_terms(V x, V first, V second, V& sum, V& square) {
  if constexpr (kForm == Form::kBound) {
    sum = hn::Add(sum, hn::Max(hn::Mul(x, first), hn::Mul(x, second)));
  } else {
    sum = hn::MulAdd(x, first, sum);
    const V part = kForm == Form::kBall ? x : hn::Mul(x, second);
    square = hn::MulAdd(part, part, square);
  }
}

// Estimates of kHeads query heads, rows of q, with one digest; score[h * stride]. `radius` is the factor of the norm.
template <Form kForm, size_t kHeads>
HWY_INLINE void score_page(const float* HWY_RESTRICT q, const uint16_t* HWY_RESTRICT digest, size_t d, float radius,
                           float* score, size_t stride) {
  const hn::ScalableTag<float> df;
  const hn::CappedTag<float, 1> d1;
  using V = hn::Vec<decltype(df)>;
  const size_t lanes = hn::Lanes(df);
  // A ball has no second vector; the first one is read again and not used.
  const uint16_t* HWY_RESTRICT second = kForm == Form::kBall ? digest : digest + d;
  V sum[kHeads], square[kHeads];
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) sum[h] = square[h] = hn::Zero(df);
  size_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    const V a = load_bf16(df, digest + i), b = load_bf16(df, second + i);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) add_terms<kForm>(hn::LoadU(df, q + h * d + i), a, b, sum[h], square[h]);
  }
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) {
    float total = hn::GetLane(hn::SumOfLanes(df, sum[h]));
    float norm = kForm == Form::kBound ? 0.0f : hn::GetLane(hn::SumOfLanes(df, square[h]));
    for (size_t j = i; j < d; ++j) {
      auto tail = hn::Zero(d1), tail_square = hn::Zero(d1);
      add_terms<kForm>(hn::Set(d1, q[h * d + j]), hn::Set(d1, bf16_to_f32(digest[j])),
                       hn::Set(d1, bf16_to_f32(second[j])), tail, tail_square);
      total += hn::GetLane(tail);
      norm += hn::GetLane(tail_square);
    }
    score[h * stride] = kForm == Form::kBound ? total : total + radius * std::sqrt(norm);
  }
}

template <Form kForm>
void score_rows_of(const PageScoreArgs& a, uint32_t kv_head, uint32_t begin, uint32_t end) {
  const size_t d = a.kv.head_dim, stride = a.kv.capacity;
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const size_t n_digest = digest_elements(a.kv.digest, d);
  for (uint32_t row = begin; row < end; ++row) {
    const uint16_t* digest = a.kv.digest_of(kv_head, row);
    // Slots are in any order, and a digest is too short for the hardware to see it coming.
    const uint16_t* ahead = a.kv.digest_of(kv_head, HWY_MIN(row + kPagesAhead, end - 1));
    for (size_t i = 0; i < n_digest; i += kLineElements) hwy::Prefetch(ahead + i);
    static_assert(WEIR_DIGEST_KINDS == 7);
    const float radius = a.kv.digest == DigestKind::kSphereMean ? bf16_to_f32(digest[d])
                         : a.kv.digest == DigestKind::kMeanStd  ? a.spread
                                                                : 0.0f;
    uint32_t head = kv_head * group, left = group;
    for (; left >= 4; left -= 4, head += 4)
      score_page<kForm, 4>(a.q + head * d, digest, d, radius, a.score + head * stride + row, stride);
    if (left == 3) score_page<kForm, 3>(a.q + head * d, digest, d, radius, a.score + head * stride + row, stride);
    if (left == 2) score_page<kForm, 2>(a.q + head * d, digest, d, radius, a.score + head * stride + row, stride);
    if (left == 1) score_page<kForm, 1>(a.q + head * d, digest, d, radius, a.score + head * stride + row, stride);
  }
}

// Scores rows [begin, end) of one KV head's table.
void score_rows(const PageScoreArgs& a, uint32_t kv_head, uint32_t begin, uint32_t end) {
  switch (a.kv.digest) {
    case DigestKind::kMinMax:
    case DigestKind::kCuboidMean:
      return score_rows_of<Form::kBound>(a, kv_head, begin, end);
    case DigestKind::kMeanStd:
      return score_rows_of<Form::kMoments>(a, kv_head, begin, end);
    case DigestKind::kSphereMean:
    case DigestKind::kCentroid:
      return score_rows_of<Form::kBall>(a, kv_head, begin, end);
    case DigestKind::kSketch:  // page_sketch.cpp
    case DigestKind::kNone:
      return;
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(score_rows);

// Pages of one task, and the number of digests (pages times KV heads) up to which the calling thread does all of the
// work: some microseconds.
constexpr uint32_t kTaskPages = 64;
constexpr size_t kSerialPages = 128;

// A page that has no digest yet scores -inf.
void unscore_open_page(const PageScoreArgs& a, uint32_t kv_head) {
  const uint32_t n = a.kv.n_pages[kv_head], group = a.n_heads / a.kv.n_kv_heads;
  if (n == 0 || a.kv.digest == DigestKind::kMinMax) return;
  if (a.kv.len[size_t{kv_head} * a.kv.capacity + n - 1] == kPageTokens) return;
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    a.score[size_t{head} * a.kv.capacity + n - 1] = -INFINITY;
}

}  // namespace

Status page_score(OpContext& cx, const PageScoreArgs& a) {
  const bool has_sketches = a.kv.digest == DigestKind::kSketch;
  const SketchQuery* queries = has_sketches ? sketch_queries(cx, a) : nullptr;
  if (has_sketches && queries == nullptr)
    return fail(WEIR_ERR_INTERNAL, "page_score: %llu bytes of scratch are too few for sketches of queries",
                static_cast<unsigned long long>(cx.scratch_bytes));
  const auto score = [&](uint32_t kv_head, uint32_t begin, uint32_t end) {
    if (has_sketches) return score_sketches(a, queries, kv_head, begin, end);
    HWY_DYNAMIC_DISPATCH(score_rows)(a, kv_head, begin, end);
  };
  const uint32_t n_kv_heads = a.kv.n_kv_heads;
  uint32_t most = 0;
  for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) most = std::max(most, a.kv.n_pages[kv_head]);
  if (size_t{most} * n_kv_heads <= kSerialPages) {
    for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) score(kv_head, 0, a.kv.n_pages[kv_head]);
  } else {
    const size_t n_blocks = (size_t{most} + kTaskPages - 1) / kTaskPages;
    cx.pool->parallel_for(n_blocks * n_kv_heads, [&](size_t task, size_t) {
      const auto kv_head = static_cast<uint32_t>(task % n_kv_heads);
      const auto begin = static_cast<uint32_t>(task / n_kv_heads) * kTaskPages;
      const uint32_t end = std::min(a.kv.n_pages[kv_head], begin + kTaskPages);
      if (begin < end) score(kv_head, begin, end);
    });
  }
  for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) unscore_open_page(a, kv_head);
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
