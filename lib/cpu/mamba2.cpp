// Mamba-2, vectorised over the columns of the sums; heads are divided among the threads.
#include "cpu/mamba2.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cpu/conv_blocks.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mamba2.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/recurrent-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

namespace {

size_t row_width(const Mamba2Args& a) { return size_t{a.n_heads} * a.value_dim + a.conv.n_channels + a.n_heads; }

// kVectors vectors of columns from `j` on of one head and token; v, z and y are the head's.
template <size_t kVectors, class Vectors>
HWY_INLINE void run_columns(const Mamba2Args& a, const float* b, const float* c, float decay, float step, float skip,
                            const float* before, float* after, size_t j, const float* v, const float* z, float* y,
                            const Vectors& io) {
  const DF df;
  const size_t lanes = hn::Lanes(df), stride = a.value_dim;
  VF x[kVectors], sum[kVectors];
  for (size_t n = 0; n < kVectors; ++n) {
    const VF value = io.load(v + j + n * lanes);
    x[n] = hn::Mul(hn::Set(df, step), value);
    sum[n] = hn::Mul(hn::Set(df, skip), value);
  }
  const VF factor = hn::Set(df, decay);
  for (size_t i = 0; i < a.key_dim; ++i) {
    const VF bi = hn::Set(df, b[i]), ci = hn::Set(df, c[i]);
    for (size_t n = 0; n < kVectors; ++n) {
      const size_t at = i * stride + j + n * lanes;
      const VF s = hn::MulAdd(bi, x[n], hn::Mul(factor, io.load(before + at)));
      io.store(s, after + at);
      sum[n] = hn::MulAdd(s, ci, sum[n]);
    }
  }
  for (size_t n = 0; n < kVectors; ++n)
    io.store(hn::Mul(sum[n], silu(df, io.load(z + j + n * lanes))), y + j + n * lanes);
}

}  // namespace

void mamba_convolve(const Mamba2Args& a, size_t block) {
  const size_t first = block * kConvChannels;
  convolve(a.conv, a.state, a.x + size_t{a.n_heads} * a.value_dim, row_width(a), a.n_tok, first,
           std::min<size_t>(kConvChannels, a.conv.n_channels - first), true);
}

void mamba_head(const Mamba2Args& a, size_t h) {
  const DF df;
  constexpr size_t kBlock = 4;
  const size_t lanes = hn::Lanes(df), n_values = a.value_dim, inner = a.n_heads * n_values;
  const size_t group = h / (a.n_heads / a.n_groups), head_sums = size_t{a.key_dim} * n_values;
  float* const after = a.state.sums_after() + h * head_sums;
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    const float *z = a.x + tok * row_width(a), *conv = z + inner, *dt = conv + a.conv.n_channels;
    const float *b = conv + inner + group * a.key_dim, *c = b + size_t{a.n_groups} * a.key_dim;
    const float* before = tok == 0 ? a.state.sums_before() + h * head_sums : after;
    const double step = softplus(double{dt[h]} + double{a.dt_bias[h]});
    const auto decay = static_cast<float>(std::exp(step * double{a.a[h]}));
    const auto run = [&](auto vectors, size_t j, const auto& io) HWY_ATTR {
      run_columns<vectors()>(a, b, c, decay, static_cast<float>(step), a.skip[h], before, after, j, conv + h * n_values,
                             z + h * n_values, a.y + tok * inner + h * n_values, io);
    };
    size_t j = 0;
    for (; j + kBlock * lanes <= n_values; j += kBlock * lanes)
      run(std::integral_constant<size_t, kBlock>(), j, Whole());
    const size_t rest = j;
    each_vector(n_values - rest,
                [&](size_t i, const auto& io) HWY_ATTR { run(std::integral_constant<size_t, 1>(), rest + i, io); });
  }
}

void mamba_norm(const Mamba2Args& a, size_t tok) {
  const size_t inner = size_t{a.n_heads} * a.value_dim, n = inner / a.n_groups;
  for (size_t first = 0; first < inner; first += n) {
    float* y = a.y + tok * inner + first;
    const double mean = sum_squares(y, n) / static_cast<double>(n);
    scale_by(y, static_cast<float>(1.0 / std::sqrt(mean + double{a.eps})), a.norm + first, y, n);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(mamba_convolve);
HWY_EXPORT(mamba_head);
HWY_EXPORT(mamba_norm);

}  // namespace

Status mamba2(OpContext& cx, const Mamba2Args& a) {
  const auto convolve = HWY_DYNAMIC_DISPATCH(mamba_convolve);
  const auto head = HWY_DYNAMIC_DISPATCH(mamba_head);
  const auto norm = HWY_DYNAMIC_DISPATCH(mamba_norm);
  cx.pool->parallel_for(conv_blocks(a.conv), [&](size_t block, size_t) { convolve(a, block); });
  cx.pool->parallel_for(a.n_heads, [&](size_t h, size_t) { head(a, h); });
  cx.pool->parallel_for(a.n_tok, [&](size_t tok, size_t) { norm(a, tok); });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
