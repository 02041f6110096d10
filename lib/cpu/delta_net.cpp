// The gated delta rule, vectorised over the columns of the sums; heads are divided among the threads. The tokens of a
// prompt take their turns: beside the matrices of a layer this is little work on a processor.
#include "cpu/delta_net.h"

#include <algorithm>
#include <cmath>

#include "cpu/conv_blocks.h"
#include "cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/delta_net.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/recurrent-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

void delta_convolve(const DeltaNetArgs& a, size_t block) {
  const size_t first = block * kConvChannels;
  convolve(a.conv, a.state, a.m, a.conv.n_channels, a.n_tok, first,
           std::min<size_t>(kConvChannels, a.conv.n_channels - first), true);
}

namespace {

// What a token does to the sums of a head.
struct Token {
  const float *q, *k, *v;  // q and k normalised
  float decay, beta;
  float kq;  // k . q
};

// kVectors vectors of columns from `j` on: o = S'^T q with S' = decay S + k e^T, from one pass over S and one that
// writes.
template <size_t kVectors, class Vectors>
HWY_INLINE void run_columns(const Token& t, const float* before, float* after, size_t n_keys, size_t stride, size_t j,
                            float* o, const Vectors& io) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  VF by_k[kVectors], by_q[kVectors];
  for (size_t c = 0; c < kVectors; ++c) by_k[c] = by_q[c] = hn::Zero(df);
  for (size_t i = 0; i < n_keys; ++i) {
    const VF k = hn::Set(df, t.k[i]), q = hn::Set(df, t.q[i]);
    for (size_t c = 0; c < kVectors; ++c) {
      const VF s = io.load(before + i * stride + j + c * lanes);
      by_k[c] = hn::MulAdd(s, k, by_k[c]);
      by_q[c] = hn::MulAdd(s, q, by_q[c]);
    }
  }
  const VF decay = hn::Set(df, t.decay), beta = hn::Set(df, t.beta), kq = hn::Set(df, t.kq);
  VF e[kVectors];
  for (size_t c = 0; c < kVectors; ++c) {
    e[c] = hn::Mul(beta, hn::NegMulAdd(decay, by_k[c], io.load(t.v + j + c * lanes)));
    io.store(hn::MulAdd(e[c], kq, hn::Mul(decay, by_q[c])), o + j + c * lanes);
  }
  for (size_t i = 0; i < n_keys; ++i) {
    const VF k = hn::Set(df, t.k[i]);
    for (size_t c = 0; c < kVectors; ++c) {
      const size_t at = i * stride + j + c * lanes;
      io.store(hn::MulAdd(k, e[c], hn::Mul(decay, io.load(before + at))), after + at);
    }
  }
}

// x [n] divided by its length, times factor.
inline void normalise(const float* x, size_t n, double factor, float* y) {
  const DF df;
  const VF inverse = hn::Set(df, static_cast<float>(factor / std::sqrt(sum_squares(x, n) + double{kLengthEps})));
  each_vector(n, [&](size_t i, const auto& io) HWY_ATTR { io.store(hn::Mul(io.load(x + i), inverse), y + i); });
}

}  // namespace

void delta_head(const DeltaNetArgs& a, size_t h) {
  const DF df;
  constexpr size_t kBlock = 4;
  const size_t lanes = hn::Lanes(df), n_keys = a.key_dim, n_values = a.value_dim;
  const size_t kh = a.grouped ? h / (a.n_heads / a.n_key_heads) : h % a.n_key_heads;
  HWY_ALIGN float q[kMaxKeyDim], k[kMaxKeyDim], o[kMaxValueDim];
  float* const after = a.state.sums_after() + h * n_keys * n_values;
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    const float* c = a.m + tok * a.conv.n_channels;
    const float* before = tok == 0 ? a.state.sums_before() + h * n_keys * n_values : after;
    const size_t gate = tok * a.gate_stride + h / a.gate_group * a.group_stride + h % a.gate_group;
    normalise(c + kh * n_keys, n_keys, 1.0 / std::sqrt(static_cast<double>(n_keys)), q);
    normalise(c + (a.n_key_heads + kh) * n_keys, n_keys, 1.0, k);
    Token t = {q, k, c + 2 * a.n_key_heads * n_keys + h * n_values, 0.0f, 0.0f, 0.0f};
    t.decay = static_cast<float>(std::exp(double{a.a[h]} * softplus(double{a.alpha[gate]} + double{a.dt_bias[h]})));
    t.beta = static_cast<float>(1.0 / (1.0 + std::exp(-double{a.beta[gate]})));
    for (size_t i = 0; i < n_keys; ++i) t.kq += k[i] * q[i];
    size_t j = 0;
    for (; j + kBlock * lanes <= n_values; j += kBlock * lanes)
      run_columns<kBlock>(t, before, after, n_keys, n_values, j, o, Whole());
    const size_t rest = j;
    each_vector(n_values - rest, [&](size_t i, const auto& io)
                                     HWY_ATTR { run_columns<1>(t, before, after, n_keys, n_values, rest + i, o, io); });
    const size_t at = (tok * a.n_heads + h) * n_values;
    const double mean = sum_squares(o, n_values) / static_cast<double>(n_values);
    scale_and_gate(o, static_cast<float>(1.0 / std::sqrt(mean + double{a.eps})), a.norm, a.z + at, a.y + at, n_values);
  }
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(delta_convolve);
HWY_EXPORT(delta_head);

}  // namespace

Status delta_net(OpContext& cx, const DeltaNetArgs& a) {
  const auto convolve = HWY_DYNAMIC_DISPATCH(delta_convolve);
  const auto head = HWY_DYNAMIC_DISPATCH(delta_head);
  cx.pool->parallel_for(conv_blocks(a.conv), [&](size_t block, size_t) { convolve(a, block); });
  cx.pool->parallel_for(a.n_heads, [&](size_t h, size_t) { head(a, h); });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
