// Soft caps of logits, compiled once per instruction set: x = cap * tanh(x / cap). Included after simd_targets.h by
// files that are themselves included per target.
#if defined(WEIR_CPU_SOFT_CAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_SOFT_CAP_INL_H_
#undef WEIR_CPU_SOFT_CAP_INL_H_
#else
#define WEIR_CPU_SOFT_CAP_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Caps x[0..n) in place. -inf, the logit of a token that is not seen, stays.
inline void cap_logits(float cap, float* x, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto factor = hn::Set(df, cap), inverse = hn::Set(df, 1.0f / cap),
             unseen = hn::Set(df, -std::numeric_limits<float>::infinity());
  const auto capped = [&](auto v) HWY_ATTR {
    return hn::IfThenElse(hn::Eq(v, unseen), v, hn::Mul(factor, hn::Tanh(df, hn::Mul(v, inverse))));
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(capped(hn::LoadU(df, x + i)), df, x + i);
  if (i == n) return;
  HWY_ALIGN float rest[hn::MaxLanes(df)] = {};
  std::copy(x + i, x + n, rest);
  hn::Store(capped(hn::Load(df, rest)), df, rest);
  std::copy(rest, rest + (n - i), x + i);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
