// Helpers of vector code, compiled once per instruction set: bf16 to f32 and back, sums in f64. Included after
// simd_targets.h by files that are themselves included per target. All of them work on every target, the plain fallback
// included.
#if defined(WEIR_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_SIMD_INL_H_
#undef WEIR_CPU_SIMD_INL_H_
#else
#define WEIR_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

// True where vectors are real. The fallback targets have no kernels with register blocking and use the reference
// instead.
#ifndef WEIR_CPU_HAS_VECTORS
#define WEIR_CPU_HAS_VECTORS (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Widens Lanes(df) bf16 numbers.
template <class DF>
HWY_INLINE hn::Vec<DF> load_bf16(DF df, const uint16_t* from) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
}

// Rounds to bf16, nearest even, as quant/half.h does: the bits in the lower half of each lane.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> round_bf16(DF, hn::Vec<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto even = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(du, 0x7FFFu))));
  const auto quiet_nan = hn::Or(upper, hn::Set(du, 0x40u));
  return hn::IfThenElse(hn::RebindMask(du, hn::Ne(v, v)), quiet_nan, rounded);
}

template <class DF>
HWY_INLINE void store_bf16(DF df, hn::Vec<DF> v, uint16_t* to) {
  const hn::Rebind<uint16_t, DF> d16;
  hn::StoreU(hn::TruncateTo(d16, round_bf16(df, v)), d16, to);
}

// Sum of squares of x[0..n) in f64.
inline double sum_squares(const float* HWY_RESTRICT x, size_t n) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const size_t lanes = hn::Lanes(dd);
  auto sum0 = hn::Zero(dd), sum1 = hn::Zero(dd), sum2 = hn::Zero(dd), sum3 = hn::Zero(dd);
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto x0 = hn::PromoteTo(dd, hn::LoadU(df, x + i)), x1 = hn::PromoteTo(dd, hn::LoadU(df, x + i + lanes));
    const auto x2 = hn::PromoteTo(dd, hn::LoadU(df, x + i + 2 * lanes)),
               x3 = hn::PromoteTo(dd, hn::LoadU(df, x + i + 3 * lanes));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  double tail = 0.0;
  for (; i < n; ++i) tail += double{x[i]} * double{x[i]};
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)))) + tail;
}

// y = x * factor * weight, rounded after each multiplication. y may be x.
inline void scale_by(const float* x, float factor, const float* weight, float* y, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto f = hn::Set(df, factor);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(df, x + i), f), hn::LoadU(df, weight + i)), df, y + i);
  for (; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

// y += x * factor * weight.
inline void add_scaled_by(const float* x, float factor, const float* weight, float* y, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto f = hn::Set(df, factor);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto scaled = hn::Mul(hn::Mul(hn::LoadU(df, x + i), f), hn::LoadU(df, weight + i));
    hn::StoreU(hn::Add(hn::LoadU(df, y + i), scaled), df, y + i);
  }
  for (; i < n; ++i) y[i] += x[i] * factor * weight[i];
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
