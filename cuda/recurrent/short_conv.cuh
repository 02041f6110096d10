// Gated short convolution (ops/short_conv.h): a thread takes a channel of a few neighbouring tokens.
#pragma once

#include "cuda/common/base.cuh"
#include "ops/short_conv.h"

namespace weir::cuda {

inline constexpr uint32_t kShortConvTokens = 8;

#ifdef __CUDACC__

// b * v in row `at`, counted from the state's oldest row.
__device__ inline float short_conv_input(const ShortConvArgs& a, const float* rows_before, uint32_t channel,
                                         uint32_t at) {
  const uint32_t n = a.conv.n_channels, n_before = a.conv.n_taps - 1;
  if (at < n_before) return rows_before[size_t{at} * n + channel];
  const float* x = a.x + size_t{at - n_before} * 3 * n + channel;
  return x[0] * x[2 * size_t{n}];
}

// kTaps: the number of taps, or 0 for any.
template <uint32_t kTaps>
__device__ inline void short_conv_channel(const ShortConvArgs& a, uint32_t channel, uint32_t part) {
  const uint32_t n = a.conv.n_channels, n_taps = kTaps != 0 ? kTaps : a.conv.n_taps, first = part * kShortConvTokens;
  const bool second = *static_cast<const volatile uint32_t*>(a.state.current) != 0;
  const float* const before = second ? a.state.rows[1] : a.state.rows[0];
  const float* const weight = a.conv.weight + size_t{channel} * n_taps;
  const float bias = a.conv.bias != nullptr ? a.conv.bias[channel] : 0.0f;
  float y[kShortConvTokens];
#pragma unroll
  for (uint32_t t = 0; t < kShortConvTokens; ++t) {
    if (first + t >= a.n_tok) continue;
    y[t] = bias;
#pragma unroll
    for (uint32_t j = 0; j < n_taps; ++j) y[t] += weight[j] * short_conv_input(a, before, channel, first + t + j);
  }
#pragma unroll
  for (uint32_t t = 0; t < kShortConvTokens; ++t) {
    const size_t tok = first + t;
    if (tok < a.n_tok) a.y[tok * n + channel] = y[t] * a.x[(tok * 3 + 1) * n + channel];
  }
  if (part != 0) return;
  float* const after = second ? a.state.rows[0] : a.state.rows[1];
  for (uint32_t i = 0; i + 1 < n_taps; ++i)
    after[size_t{i} * n + channel] = short_conv_input(a, before, channel, a.n_tok + i);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
