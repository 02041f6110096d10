// What the kernels of recurrent layers share (ops/recurrent.h): the gated delta rule and Mamba-2 are described alike,
// one head at a time, so that one kernel for a step and one for prompts serve both.
//
// A head has sums S [key_dim, value_dim]; each token multiplies them by a decay and adds a product of the head's key
// and value, and the head's output is the product of S and its query. In Mamba-2 B is the key and C the query.
#pragma once

#include "cuda/common/base.cuh"
#include "ops/delta_net.h"
#include "ops/mamba2.h"
#include "ops/recurrent.h"

namespace weir::cuda {

struct RecurrentArgs {
  float* y;            // out [n_tok, n_heads, value_dim]
  const float* input;  // channel 0 of the first token's input of the convolution
  size_t stride;       // elements from a token's input to the next one's
  const float* z;      // gates of the output: head 0 of the first token
  size_t z_stride;     // elements from a token's z to the next one's
  ConvArgs conv;
  LayerState state;
  uint32_t n_tok, n_key_heads, n_heads, key_dim, value_dim;
  bool grouped;                        // head h uses key head h / (n_heads / n_key_heads), else h mod n_key_heads
  uint32_t first_q, first_k, first_v;  // channels of head 0
  const float *beta, *alpha;           // gate of head h in row t: t * gate_stride + h / gate_group * group_stride + ...
  uint32_t gate_stride, gate_group, group_stride;
  const float *a, *dt_bias;
  const float* skip;  // null: the delta rule
  const float* norm;
  float eps;
};

inline RecurrentArgs recurrent_args(const DeltaNetArgs& a) {
  RecurrentArgs r = {};
  r.y = a.y;
  r.input = a.m;
  r.stride = a.conv.n_channels;
  r.z = a.z;
  r.z_stride = size_t{a.n_heads} * a.value_dim;
  r.conv = a.conv;
  r.state = a.state;
  r.n_tok = a.n_tok;
  r.n_key_heads = a.n_key_heads;
  r.n_heads = a.n_heads;
  r.key_dim = a.key_dim;
  r.value_dim = a.value_dim;
  r.grouped = a.grouped;
  r.first_k = a.n_key_heads * a.key_dim;
  r.first_v = 2 * r.first_k;
  r.beta = a.beta;
  r.alpha = a.alpha;
  r.gate_stride = a.gate_stride;
  r.gate_group = a.gate_group;
  r.group_stride = a.group_stride;
  r.a = a.a;
  r.dt_bias = a.dt_bias;
  r.norm = a.norm;
  r.eps = a.eps;
  return r;
}

inline RecurrentArgs recurrent_args(const Mamba2Args& a) {
  const uint32_t inner = a.n_heads * a.value_dim;
  RecurrentArgs r = {};
  r.y = a.y;
  r.input = a.x + inner;
  r.stride = r.z_stride = size_t{inner} + a.conv.n_channels + a.n_heads;
  r.z = a.x;
  r.conv = a.conv;
  r.state = a.state;
  r.n_tok = a.n_tok;
  r.n_key_heads = a.n_groups;
  r.n_heads = a.n_heads;
  r.key_dim = a.key_dim;
  r.value_dim = a.value_dim;
  r.grouped = true;
  r.first_k = inner;
  r.first_q = inner + a.n_groups * a.key_dim;
  r.alpha = r.input + a.conv.n_channels;
  r.gate_stride = static_cast<uint32_t>(r.stride);
  r.gate_group = a.n_heads;
  r.a = a.a;
  r.dt_bias = a.dt_bias;
  r.skip = a.skip;
  r.norm = a.norm;
  r.eps = a.eps;
  return r;
}

// Sizes that the kernels have code for: four elements of a head are read at once.
constexpr bool has_recurrent_kernels(uint32_t key_dim, uint32_t value_dim, uint32_t n_taps) {
  return key_dim % 4 == 0 && value_dim % 4 == 0 && key_dim - 1 < kMaxKeyDim && value_dim - 1 < kMaxValueDim &&
         n_taps - 1 < kMaxTaps;
}

#ifdef __CUDACC__

// The state that a pass reads and the one that it writes.
struct StateView {
  const float* rows_before;
  float* rows_after;
  const float* sums_before;
  float* sums_after;
};

// `current` is read here, by the device, so that a recorded launch follows it.
__device__ inline StateView view_of(const LayerState& s) {
  const bool second = *static_cast<const volatile uint32_t*>(s.current) != 0;
  return {second ? s.rows[1] : s.rows[0], second ? s.rows[0] : s.rows[1], second ? s.sums[1] : s.sums[0],
          second ? s.sums[0] : s.sums[1]};
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// What a token does to the sums of a head: they are multiplied by `decay`, and the delta rule writes the part `write`
// of what is new, Mamba-2 its value times `write`.
struct HeadGates {
  float decay, write;
};

__device__ inline size_t gate_at(const RecurrentArgs& a, uint32_t tok, uint32_t h) {
  return size_t{tok} * a.gate_stride + h / a.gate_group * a.group_stride + h % a.gate_group;
}

// exp(x), next to 1 within half a unit in the last place. expf() is up to two off, for the same decay always in the
// same direction, which a head that adds up thousands of tokens multiplies as often.
__device__ inline float decay_of(float x) { return x > -1.0f ? 1.0f + expm1f(x) : expf(x); }

template <bool kDelta>
__device__ inline HeadGates gates_of(const RecurrentArgs& a, uint32_t h, float alpha, float beta) {
  const float step = softplus(alpha + a.dt_bias[h]);
  return {decay_of(a.a[h] * step), kDelta ? sigmoid(beta) : step};
}

__device__ inline uint32_t key_head_of(const RecurrentArgs& a, uint32_t h) {
  return a.grouped ? h / (a.n_heads / a.n_key_heads) : h % a.n_key_heads;
}
// Whether head h is the first that reads its key head: it alone keeps the rows of the key head's channels.
__device__ inline bool is_first_of_key_head(const RecurrentArgs& a, uint32_t h) {
  return a.grouped ? h % (a.n_heads / a.n_key_heads) == 0 : h < a.n_key_heads;
}

// Input of a channel in row `at`, counted from the state's oldest row.
__device__ inline float conv_input(const RecurrentArgs& a, const float* rows_before, uint32_t channel, uint32_t at) {
  const uint32_t n_before = a.conv.n_taps - 1;
  return at < n_before ? rows_before[size_t{at} * a.conv.n_channels + channel]
                       : a.input[(at - n_before) * a.stride + channel];
}

// Writes what the state keeps of a channel after the pass.
__device__ inline void keep_rows(const RecurrentArgs& a, const StateView& state, uint32_t channel) {
  for (uint32_t i = 0; i + 1 < a.conv.n_taps; ++i)
    state.rows_after[size_t{i} * a.conv.n_channels + channel] = conv_input(a, state.rows_before, channel, a.n_tok + i);
}

// The convolution's output for token `tok`, after silu. Every input is read from memory: for numbers of taps that no
// model has.
__device__ inline float convolve_from_memory(const RecurrentArgs& a, const float* rows_before, uint32_t channel,
                                             uint32_t tok) {
  const float* weight = a.conv.weight + size_t{channel} * a.conv.n_taps;
  float sum = a.conv.bias != nullptr ? a.conv.bias[channel] : 0.0f;
  for (uint32_t j = 0; j < a.conv.n_taps; ++j) sum += weight[j] * conv_input(a, rows_before, channel, tok + j);
  return silu(sum);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
