// What the references of recurrent layers share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ops/recurrent.h"

namespace weir::ref {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
// log(1 + exp(x)); of large x it is x.
inline double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// The convolution's output of one channel for token `tok`. input(t) is the channel's input in the pass, and `rows` what
// was before.
template <class Input>
double convolve(const ConvArgs& conv, const float* rows, size_t channel, size_t tok, const Input& input) {
  const size_t before = conv.n_taps - 1;
  double sum = conv.bias != nullptr ? double{conv.bias[channel]} : 0.0;
  for (size_t j = 0; j < conv.n_taps; ++j) {
    const size_t at = tok + j;  // counted from the oldest row
    const float x = at < before ? rows[at * conv.n_channels + channel] : input(at - before);
    sum += double{conv.weight[channel * conv.n_taps + j]} * double{x};
  }
  return sum;
}

// The rows after a pass of n_tok tokens. `after` is not `before`.
template <class Input>
void keep_rows(const ConvArgs& conv, const float* before, float* after, size_t channel, size_t n_tok,
               const Input& input) {
  const size_t n = conv.n_taps - 1;
  for (size_t i = 0; i < n; ++i) {
    const size_t at = n_tok + i;
    after[i * conv.n_channels + channel] = at < n ? before[at * conv.n_channels + channel] : input(at - n);
  }
}

}  // namespace weir::ref
