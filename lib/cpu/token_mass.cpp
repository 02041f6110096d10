// Attention weights of tokens, summed over many query rows. A work item is (KV head, page). The page's keys are widened
// and transposed so that tokens lie in lanes. Every query row then costs one multiply-add per element and vector of
// tokens, and one exp.
// Papers: Li et al., "SnapKV", arXiv:2404.14469, sec. 4; Zhang et al., "H2O", arXiv:2306.14048.
#include "cpu/token_mass.h"

#include <algorithm>
#include <limits>

#include "core/memory.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/token_mass.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/simd-inl.h"
#include "cpu/soft_cap-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

// Adds the weights of one query row to mass[kPageTokens]; `turned` is [head_dim, kPageTokens], the transposed keys.
// Only tokens in [begin, n_seen) are seen.
template <bool kCapped>
void add_row(const float* HWY_RESTRICT q, const float* HWY_RESTRICT turned, size_t d, float scale, float cap, float lse,
             uint32_t begin, uint32_t n_seen, float* HWY_RESTRICT mass) {
  const hn::CappedTag<float, kPageTokens> df;
  const size_t lanes = hn::Lanes(df);
  for (size_t t = 0; t < kPageTokens; t += lanes) {
    auto even = hn::Zero(df), odd = hn::Zero(df);
    size_t i = 0;
    for (; i + 2 <= d; i += 2) {
      even = hn::MulAdd(hn::Set(df, q[i]), hn::Load(df, turned + i * kPageTokens + t), even);
      odd = hn::MulAdd(hn::Set(df, q[i + 1]), hn::Load(df, turned + (i + 1) * kPageTokens + t), odd);
    }
    if (i < d) even = hn::MulAdd(hn::Set(df, q[i]), hn::Load(df, turned + i * kPageTokens + t), even);
    auto logit = hn::Mul(hn::Add(even, odd), hn::Set(df, scale));
    if constexpr (kCapped) logit = hn::Mul(hn::Set(df, cap), hn::Tanh(df, hn::Mul(logit, hn::Set(df, 1.0f / cap))));
    const auto weight = hn::Exp(df, hn::Sub(logit, hn::Set(df, lse)));
    const auto before = hn::FirstN(df, begin > t ? begin - t : 0);
    const auto seen = hn::AndNot(before, hn::FirstN(df, n_seen > t ? n_seen - t : 0));
    hn::Store(hn::Add(hn::Load(df, mass + t), hn::IfThenElseZero(seen, weight)), df, mass + t);
  }
}

void page_mass_of(const TokenMassArgs& a, uint32_t kv_head, uint32_t page, float* turned) {
  const size_t d = a.kv.head_dim, at = size_t{kv_head} * a.kv.capacity + page;
  const uint32_t len = a.kv.len[at], first = a.kv.first_pos[at], group = a.n_heads / a.kv.n_kv_heads;
  const auto keys = a.kv.keys_of(kv_head, page);
  for (uint32_t t = 0; t < kPageTokens; ++t) {
    for (size_t i = 0; i < d; ++i) turned[i * kPageTokens + t] = t < len ? load_element(keys, t, i) : 0.0f;
  }
  HWY_ALIGN float mass[kPageTokens] = {};
  for (uint32_t r = first > a.pos ? first - a.pos : 0; r < a.n_rows; ++r) {
    const uint32_t row_pos = a.pos + r, n_seen = std::min(len, row_pos - first + 1);
    // The first position in the row's window, counted from the page's first.
    const uint32_t begin = a.window != 0 && row_pos - first >= a.window ? row_pos - first - a.window + 1 : 0;
    if (begin >= n_seen) continue;
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const size_t row = size_t{r} * a.n_heads + head;
      if (a.soft_cap != 0.0f) {
        add_row<true>(a.q + row * d, turned, d, a.scale, a.soft_cap, a.lse[row], begin, n_seen, mass);
      } else {
        add_row<false>(a.q + row * d, turned, d, a.scale, 0.0f, a.lse[row], begin, n_seen, mass);
      }
    }
  }
  std::copy(mass, mass + len, a.mass + at * kPageTokens);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(page_mass_of);

uint64_t turned_bytes(uint32_t head_dim) {
  return align_up(uint64_t{head_dim} * kPageTokens * sizeof(float), kCacheLine);
}

}  // namespace

uint64_t token_mass_scratch_bytes(const OpShapes& shapes) { return shapes.n_threads * turned_bytes(shapes.head_dim); }

Status token_mass(OpContext& cx, const TokenMassArgs& a) {
  const auto masses = HWY_DYNAMIC_DISPATCH(page_mass_of);
  uint32_t most = 0;
  for (uint32_t kv_head = 0; kv_head < a.kv.n_kv_heads; ++kv_head) most = std::max(most, a.kv.n_pages[kv_head]);
  cx.pool->parallel_for(size_t{most} * a.kv.n_kv_heads, [&](size_t task, size_t worker) {
    const auto kv_head = static_cast<uint32_t>(task % a.kv.n_kv_heads);
    const auto page = static_cast<uint32_t>(task / a.kv.n_kv_heads);
    if (page >= a.kv.n_pages[kv_head]) return;
    masses(a, kv_head, page, reinterpret_cast<float*>(cx.scratch + worker * turned_bytes(a.kv.head_dim)));
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
