// One token of a recurrent layer: a block per head. It convolves the channels that the head reads, and goes over the
// head's sums once.
//
//   Numerics  f32; sums over keys in a fixed order, so that the same bits come out every time
//   Traffic   the sums of a layer read and written once; channels of a key head convolved by each head that reads it
#pragma once

#include "cuda/common/load_stream.cuh"
#include "cuda/recurrent/recurrent.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

inline constexpr uint32_t kStepThreads = 512;
inline constexpr uint32_t kStepWarps = kStepThreads / kWarp;
// Rows of the sums that a thread holds, four columns each: those of all heads up to 128 x 128. More are read twice.
inline constexpr uint32_t kStepRows = 8;

struct alignas(16) StepShared {
  float partial[2][4 * kStepThreads];             // [thread row, value_dim] of S^T k and S^T q
  float channels[2 * kMaxKeyDim + kMaxValueDim];  // q, k, v after the convolution
  float added[kMaxValueDim];                      // what each column gets, times the key
  float squares[kStepWarps];
  float qq, kk, kq;
  HeadGates gates;
};

// How a block's threads share the sums: each has four columns and every n_rows-th row.
struct StepTile {
  uint32_t n_rows, row, quad;
  bool active;
  __device__ explicit StepTile(const RecurrentArgs& a) {
    const uint32_t n_quads = a.value_dim / 4;
    n_rows = min(kStepThreads / n_quads, a.key_dim);
    row = threadIdx.x / n_quads;
    quad = threadIdx.x % n_quads;
    active = row < n_rows;
  }
};

// Number of the channel that is element c of the head's q, k, v.
__device__ inline uint32_t step_channel(const RecurrentArgs& a, uint32_t h, uint32_t key_head, uint32_t c) {
  if (c < a.key_dim) return a.first_q + key_head * a.key_dim + c;
  if (c < 2 * a.key_dim) return a.first_k + key_head * a.key_dim + c - a.key_dim;
  return a.first_v + h * a.value_dim + c - 2 * a.key_dim;
}

// The convolution's output of a channel, after silu; with `keep` also what the state keeps of it.
template <uint32_t kTaps>
__device__ inline float step_convolve(const RecurrentArgs& a, const StateView& state, uint32_t channel, bool keep) {
  if constexpr (kTaps == 0) {
    if (keep) keep_rows(a, state, channel);
    return convolve_from_memory(a, state.rows_before, channel, 0);
  } else {
    float x[kTaps];  // all loads before the first store
#pragma unroll
    for (uint32_t j = 0; j < kTaps; ++j) x[j] = conv_input(a, state.rows_before, channel, j);
    float sum = a.conv.bias != nullptr ? a.conv.bias[channel] : 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kTaps; ++j) sum += a.conv.weight[size_t{channel} * kTaps + j] * x[j];
#pragma unroll
    for (uint32_t j = 0; j + 1 < kTaps; ++j) {
      if (keep) state.rows_after[size_t{j} * a.conv.n_channels + channel] = x[j + 1];
    }
    return silu(sum);
  }
}

// Brings into the L2 cache, while the previous kernel runs, what does not depend on it. `current` may change until that
// kernel has ended: then this was in vain.
__device__ inline void prefetch_step(const RecurrentArgs& a, uint32_t h, uint32_t key_head) {
  constexpr uint32_t kLine = 32;  // floats
  const size_t n_sums = size_t{a.key_dim} * a.value_dim;
  const float* sums = view_of(a.state).sums_before + h * n_sums;
  for (size_t i = threadIdx.x * kLine; i < n_sums; i += kStepThreads * kLine) prefetch_l2(sums + i);
  for (uint32_t c = threadIdx.x; c < 2 * a.key_dim + a.value_dim; c += kStepThreads) {
    if (c * a.conv.n_taps % kLine < a.conv.n_taps)
      prefetch_l2(a.conv.weight + size_t{step_channel(a, h, key_head, c)} * a.conv.n_taps);
  }
}

__device__ inline void add_scaled(float4& to, float x, const float4& s) {
  to.x += x * s.x;
  to.y += x * s.y;
  to.z += x * s.z;
  to.w += x * s.w;
}

// decay * s + x * added
__device__ inline float4 decayed(const float4& s, float decay, float x, const float4& added) {
  return make_float4(decay * s.x + x * added.x, decay * s.y + x * added.y, decay * s.z + x * added.z,
                     decay * s.w + x * added.w);
}

// Sum of a column's partial sums of all thread rows.
__device__ inline float column_sum(const float* partial, uint32_t n_rows, uint32_t stride, uint32_t column) {
  float sum = 0.0f;
  for (uint32_t row = 0; row < n_rows; ++row) sum += partial[row * stride + column];
  return sum;
}

// Sums of products over the head's q and k, by the first three warps.
__device__ inline void step_products(const RecurrentArgs& a, StepShared& s) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (warp > 2) return;
  const float *q = s.channels, *k = s.channels + a.key_dim, *x = warp == 1 ? k : q, *y = warp == 0 ? q : k;
  float sum = 0.0f;
  for (uint32_t i = lane; i < a.key_dim; i += kWarp) sum += x[i] * y[i];
  sum = warp_sum(sum);
  if (lane == 0) (warp == 0 ? s.qq : warp == 1 ? s.kk : s.kq) = sum;
}

// The delta rule after the partial sums: what each column gets; returns the output of column threadIdx.x.
__device__ inline float step_delta_column(const RecurrentArgs& a, const StepTile& tile, StepShared& s) {
  const uint32_t j = threadIdx.x;
  const float k_scale = 1.0f / sqrtf(s.kk + kLengthEps);
  const float q_scale = 1.0f / sqrtf((s.qq + kLengthEps) * static_cast<float>(a.key_dim));
  const float by_k = column_sum(s.partial[0], tile.n_rows, a.value_dim, j);
  const float by_q = column_sum(s.partial[1], tile.n_rows, a.value_dim, j);
  const float e = s.gates.write * (s.channels[2 * a.key_dim + j] - s.gates.decay * k_scale * by_k);
  s.added[j] = k_scale * e;
  return q_scale * (s.gates.decay * by_q + k_scale * s.kq * e);
}

// All threads of the block call it. The output of Mamba-2 is what comes before its gate and norm.
template <bool kDelta, uint32_t kTaps>
__device__ inline void step_head(const RecurrentArgs& a, uint32_t h, StepShared& s) {
  const uint32_t thread = threadIdx.x, key_head = key_head_of(a, h), n_channels = 2 * a.key_dim + a.value_dim;
  prefetch_step(a, h, key_head);
  wait_for_previous();
  const StateView state = view_of(a.state);
  const StepTile tile(a);
  const size_t first = size_t{h} * a.key_dim * a.value_dim + 4 * tile.quad;
  const float* const before = state.sums_before + first;
  float* const after = state.sums_after + first;
  const auto load = [&](uint32_t i) { return *reinterpret_cast<const float4*>(before + size_t{i} * a.value_dim); };
  const auto store = [&](uint32_t i, const float4& v) {
    *reinterpret_cast<float4*>(after + size_t{i} * a.value_dim) = v;
  };
  const bool held = a.key_dim <= kStepRows * tile.n_rows;
  float4 sums[kStepRows];
#pragma unroll
  for (uint32_t n = 0; n < kStepRows; ++n) {
    const uint32_t i = tile.row + n * tile.n_rows;
    sums[n] = held && tile.active && i < a.key_dim ? load(i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  // f(row, its sums) for the thread's rows.
  const auto for_rows = [&](const auto& f) {
    if (!tile.active) return;
    if (held) {
#pragma unroll
      for (uint32_t n = 0; n < kStepRows; ++n) {
        const uint32_t i = tile.row + n * tile.n_rows;
        if (i < a.key_dim) f(i, sums[n]);
      }
    } else {
      for (uint32_t i = tile.row; i < a.key_dim; i += tile.n_rows) f(i, load(i));
    }
  };
  const bool has_column = thread < a.value_dim;
  const size_t column = size_t{h} * a.value_dim + thread;
  const float z = kDelta && has_column ? a.z[column] : 0.0f, norm = kDelta && has_column ? a.norm[thread] : 0.0f;

  const bool first_of_key_head = is_first_of_key_head(a, h);
  for (uint32_t c = thread; c < n_channels; c += kStepThreads) {
    const uint32_t channel = step_channel(a, h, key_head, c);
    s.channels[c] = step_convolve<kTaps>(a, state, channel, first_of_key_head || c >= 2 * a.key_dim);
  }
  if (thread == kStepThreads - 1) {
    const size_t gate = gate_at(a, 0, h);
    s.gates = gates_of<kDelta>(a, h, a.alpha[gate], kDelta ? a.beta[gate] : 0.0f);
  }
  __syncthreads();

  const float *q = s.channels, *k = s.channels + a.key_dim, *v = s.channels + 2 * a.key_dim;
  float4 by_k = make_float4(0.0f, 0.0f, 0.0f, 0.0f), by_q = by_k;
  if (kDelta) {
    for_rows([&](uint32_t i, const float4& sum) {
      add_scaled(by_k, k[i], sum);
      add_scaled(by_q, q[i], sum);
    });
    step_products(a, s);
  } else {
    float4 added = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    add_scaled(added, s.gates.write, tile.active ? *reinterpret_cast<const float4*>(v + 4 * tile.quad) : added);
    for_rows([&](uint32_t i, const float4& sum) {
      const float4 now = decayed(sum, s.gates.decay, k[i], added);
      add_scaled(by_q, q[i], now);
      store(i, now);
    });
  }
  if (tile.active) {
    const uint32_t at = tile.row * a.value_dim + 4 * tile.quad;
    if (kDelta) *reinterpret_cast<float4*>(s.partial[0] + at) = by_k;
    *reinterpret_cast<float4*>(s.partial[1] + at) = by_q;
  }
  __syncthreads();

  if (!kDelta) {
    if (has_column) a.y[column] = column_sum(s.partial[1], tile.n_rows, a.value_dim, thread) + a.skip[h] * v[thread];
    return;
  }
  const float o = has_column ? step_delta_column(a, tile, s) : 0.0f;
  const float squares = warp_sum(o * o);
  if (thread % kWarp == 0) s.squares[thread / kWarp] = squares;
  __syncthreads();

  float4 added = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (tile.active) added = *reinterpret_cast<const float4*>(s.added + 4 * tile.quad);
  for_rows([&](uint32_t i, const float4& sum) { store(i, decayed(sum, s.gates.decay, k[i], added)); });
  if (!has_column) return;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kStepWarps; ++i) sum += s.squares[i];
  a.y[column] = o / sqrtf(sum / static_cast<float>(a.value_dim) + a.eps) * norm * silu(z);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
