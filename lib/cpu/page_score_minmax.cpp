// Quest's bound of q.k over a page, vectorised over the elements of a head; up to four query heads share what is read
// of a digest. Sums are in f64 as in the reference: the order of a sum decides no ranking.
// Paper: Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", arXiv:2406.10774,
// sec. 3.2.
#include "cpu/page_score_minmax.h"

#include <algorithm>

#include "cpu/simd_targets.h"
#include "quant/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/page_score_minmax.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

// Bounds of kHeads query heads, rows of q, with one digest; score[h * stride].
template <size_t kHeads>
HWY_INLINE void score_page(const float* HWY_RESTRICT q, const uint16_t* HWY_RESTRICT high, size_t d, float* score,
                           size_t stride) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const size_t lanes = hn::Lanes(dd);
  const uint16_t* HWY_RESTRICT low = high + d;
  hn::Vec<decltype(dd)> sum[kHeads];
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) sum[h] = hn::Zero(dd);
  size_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    const auto max = load_bf16(df, high + i), min = load_bf16(df, low + i);
    HWY_UNROLL(4)
    for (size_t h = 0; h < kHeads; ++h) {
      const auto x = hn::LoadU(df, q + h * d + i);
      sum[h] = hn::Add(sum[h], hn::PromoteTo(dd, hn::Max(hn::Mul(x, max), hn::Mul(x, min))));
    }
  }
  HWY_UNROLL(4)
  for (size_t h = 0; h < kHeads; ++h) {
    double tail = 0.0;
    for (size_t j = i; j < d; ++j)
      tail += double{std::max(q[h * d + j] * bf16_to_f32(high[j]), q[h * d + j] * bf16_to_f32(low[j]))};
    score[h * stride] = static_cast<float>(hn::GetLane(hn::SumOfLanes(dd, sum[h])) + tail);
  }
}

// Rows [begin, end) of one KV head's table.
void score_rows(const PageScoreArgs& a, uint32_t kv_head, uint32_t begin, uint32_t end) {
  const size_t d = a.kv.head_dim, stride = a.kv.capacity;
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t* slots = a.kv.slots + size_t{kv_head} * a.kv.capacity;
  for (uint32_t row = begin; row < end; ++row) {
    const uint16_t* digest = a.kv.digests + size_t{slots[row]} * 2 * d;
    uint32_t head = kv_head * group, left = group;
    for (; left >= 4; left -= 4, head += 4)
      score_page<4>(a.q + head * d, digest, d, a.score + head * stride + row, stride);
    if (left == 3) score_page<3>(a.q + head * d, digest, d, a.score + head * stride + row, stride);
    if (left == 2) score_page<2>(a.q + head * d, digest, d, a.score + head * stride + row, stride);
    if (left == 1) score_page<1>(a.q + head * d, digest, d, a.score + head * stride + row, stride);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(score_rows);

// Pages of one task, and digests (pages times KV heads) up to which the calling thread does all of it: some
// microseconds.
constexpr uint32_t kTaskPages = 64;
constexpr size_t kSerialPages = 128;

}  // namespace

Status page_score_minmax(OpContext& cx, const PageScoreArgs& a) {
  const auto score = HWY_DYNAMIC_DISPATCH(score_rows);
  const uint32_t n_kv_heads = a.kv.n_kv_heads;
  uint32_t most = 0;
  for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) most = std::max(most, a.kv.n_pages[kv_head]);
  if (size_t{most} * n_kv_heads <= kSerialPages) {
    for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) score(a, kv_head, 0, a.kv.n_pages[kv_head]);
    return {};
  }
  const size_t n_blocks = (size_t{most} + kTaskPages - 1) / kTaskPages;
  cx.pool->parallel_for(n_blocks * n_kv_heads, [&](size_t task, size_t) {
    const auto kv_head = static_cast<uint32_t>(task % n_kv_heads);
    const auto begin = static_cast<uint32_t>(task / n_kv_heads) * kTaskPages;
    const uint32_t end = std::min(a.kv.n_pages[kv_head], begin + kTaskPages);
    if (begin < end) score(a, kv_head, begin, end);
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
