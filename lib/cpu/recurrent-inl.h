// What the kernels of recurrent layers share, compiled once per instruction set: the convolution of channels, and
// gates. Included after simd_targets.h by files that are themselves included per target.
#if defined(WEIR_CPU_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_CPU_RECURRENT_INL_H_
#undef WEIR_CPU_RECURRENT_INL_H_
#else
#define WEIR_CPU_RECURRENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "cpu/conv_blocks.h"
#include "cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "ops/recurrent.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// exp() of more than 88 is not finite. Min() and Exp() take NaN for a number.
inline VF sigmoid(DF df, VF x) {
  const VF one = hn::Set(df, 1.0f), grown = hn::Exp(df, hn::Min(hn::Neg(x), hn::Set(df, 88.0f)));
  return hn::IfThenElse(hn::Eq(x, x), hn::Div(one, hn::Add(one, grown)), x);
}
inline VF silu(DF df, VF x) { return hn::Mul(x, sigmoid(df, x)); }

// Lanes(df) numbers, of which only the first n are there.
inline VF load_some(DF df, const float* from, size_t n) {
  HWY_ALIGN float lanes[hn::MaxLanes(df)] = {};
  std::copy_n(from, n, lanes);
  return hn::Load(df, lanes);
}
inline void store_some(DF df, VF v, float* to, size_t n) {
  HWY_ALIGN float lanes[hn::MaxLanes(df)];
  hn::Store(v, df, lanes);
  std::copy_n(lanes, n, to);
}

// Reads and writes whole vectors, and the beginning of one.
struct Whole {
  VF load(const float* from) const { return hn::LoadU(DF(), from); }
  void store(VF v, float* to) const { hn::StoreU(v, DF(), to); }
};
struct Some {
  size_t n;
  VF load(const float* from) const { return load_some(DF(), from, n); }
  void store(VF v, float* to) const { store_some(DF(), v, to, n); }
};

// fn(i, io) for vectors of the n elements from i on, which `io` reads and writes; the last may be a part of one.
template <class Fn>
HWY_INLINE void each_vector(size_t n, const Fn& fn) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) fn(i, Whole());
  if (i < n) fn(i, Some{n - i});
}

// Convolves `n` channels of n_tok tokens from channel `first` on, in place, and leaves the rows that follow the pass.
// x: channel 0 of the first token; tokens are `stride` elements apart.
inline void convolve(const ConvArgs& conv, const LayerState& state, float* x, size_t stride, size_t n_tok, size_t first,
                     size_t n, bool activate) {
  const DF df;
  const size_t n_before = conv.n_taps - 1;  // 0: there are no rows
  const float* before = state.rows_before();
  float* after = state.rows_after();
  x += first;
  const auto input = [&](size_t at) -> const float* {  // counted from the oldest row
    return at < n_before ? before + at * conv.n_channels + first : x + (at - n_before) * stride;
  };
  for (size_t i = 0; i < n_before; ++i) std::copy_n(input(n_tok + i), n, after + i * conv.n_channels + first);
  HWY_ALIGN float weight[kMaxTaps * kConvChannels];
  for (size_t j = 0; j < conv.n_taps; ++j) {
    for (size_t i = 0; i < n; ++i) weight[j * kConvChannels + i] = conv.weight[(first + i) * conv.n_taps + j];
  }
  // The last token first: an output takes the place of an input that no earlier token needs.
  for (size_t tok = n_tok; tok-- > 0;) {
    each_vector(n, [&](size_t i, const auto& io) HWY_ATTR {
      VF sum = conv.bias != nullptr ? io.load(conv.bias + first + i) : hn::Zero(df);
      for (size_t j = 0; j < conv.n_taps; ++j)
        sum = hn::MulAdd(io.load(weight + j * kConvChannels + i), io.load(input(tok + j) + i), sum);
      io.store(activate ? silu(df, sum) : sum, x + tok * stride + i);
    });
  }
}

// log(1 + exp(x)); of large x it is x.
inline double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// y = x * factor * weight * silu(z).
inline void scale_and_gate(const float* x, float factor, const float* weight, const float* z, float* y, size_t n) {
  const DF df;
  each_vector(n, [&](size_t i, const auto& io) HWY_ATTR {
    const VF scaled = hn::Mul(hn::Mul(io.load(x + i), hn::Set(df, factor)), io.load(weight + i));
    io.store(hn::Mul(scaled, silu(df, io.load(z + i))), y + i);
  });
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
