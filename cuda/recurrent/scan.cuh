// The tokens of a prompt, one after another, of kScanColumns columns of a head's sums: columns do not depend on each
// other. The sums stay in registers; eight lanes share two columns, and each has every eighth four rows.
//
// A few tokens at a time are convolved into shared memory; their inputs were loaded while the ones before were scanned.
// Each of a head's blocks convolves its keys and queries for itself, which costs less than to write them to memory.
//
//   Numerics  f32; sums over keys in a fixed order, so that the same bits come out every time
//   Traffic   inputs once per block that reads them, mostly from the L2 cache; the sums once
#pragma once

#include "cuda/common/team_sum.cuh"
#include "cuda/recurrent/recurrent.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

inline constexpr uint32_t kScanThreads = 128;
inline constexpr uint32_t kScanLanes = 8;  // that share two columns
inline constexpr uint32_t kScanColumns = 2 * kScanThreads / kScanLanes;
inline constexpr uint32_t kScanTokens = 8;  // convolved together

// For heads of up to 32 * kRowQuads keys.
template <uint32_t kRowQuads>
struct alignas(16) ScanShared {
  static constexpr uint32_t kKeys = 4 * kScanLanes * kRowQuads;
  static constexpr uint32_t kWidth = 2 * kKeys + kScanColumns;  // q, k (both with zeros behind them), v
  float tile[kScanTokens][kWidth];                              // after the convolution
  HeadGates gates[kScanTokens];
  float q_scale[kScanTokens], k_scale[kScanTokens], kq[kScanTokens];  // of the delta rule; kq is scaled
};

// The channels that a thread convolves: every kScanThreads-th of the block's.
template <uint32_t kTaps, uint32_t kRowQuads>
class ScanChannels {
 public:
  using Shared = ScanShared<kRowQuads>;

  __device__ ScanChannels(const RecurrentArgs& a, const StateView& state, uint32_t h, uint32_t first_column)
      : a_(a), rows_before_(state.rows_before) {
    const uint32_t key_head = key_head_of(a, h);
#pragma unroll
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t c = threadIdx.x + n * kScanThreads;
      const uint32_t part = c / Shared::kKeys, i = c - min(part, 2u) * Shared::kKeys;
      const bool is_key = part < 2;
      valid_[n] = c < Shared::kWidth && (is_key ? i < a.key_dim : first_column + i < a.value_dim);
      channel_[n] = !valid_[n] ? 0
                    : is_key   ? (part == 0 ? a.first_q : a.first_k) + key_head * a.key_dim + i
                               : a.first_v + h * a.value_dim + first_column + i;
      // One block keeps the rows of a channel.
      if (valid_[n] && (!is_key || (first_column == 0 && is_first_of_key_head(a, h)))) keep_rows(a, state, channel_[n]);
      bias_[n] = valid_[n] && a.conv.bias != nullptr ? a.conv.bias[channel_[n]] : 0.0f;
      if constexpr (kTaps != 0) {
#pragma unroll
        for (uint32_t j = 0; j < kTaps; ++j) {
          weight_[n][j] = valid_[n] ? a.conv.weight[size_t{channel_[n]} * kTaps + j] : 0.0f;
          if (j + 1 < kTaps) window_[n][j] = valid_[n] ? conv_input(a, rows_before_, channel_[n], j) : 0.0f;
        }
      }
    }
  }

  // Begins to load the inputs of the tokens from `first` on.
  __device__ void load(uint32_t first) {
    if constexpr (kTaps != 0) {
#pragma unroll
      for (uint32_t n = 0; n < kOwn; ++n) {
#pragma unroll
        for (uint32_t t = 0; t < kScanTokens; ++t)
          input_[n][t] = valid_[n] && first + t < a_.n_tok ? a_.input[(first + t) * a_.stride + channel_[n]] : 0.0f;
      }
    }
  }

  // Convolves the tokens that were loaded last.
  __device__ void convolve(uint32_t first, Shared& s) {
#pragma unroll
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t c = threadIdx.x + n * kScanThreads;
      if (c >= Shared::kWidth) continue;
#pragma unroll
      for (uint32_t t = 0; t < kScanTokens; ++t) s.tile[t][c] = output(n, first, t);
    }
  }

 private:
  static constexpr uint32_t kOwn = (Shared::kWidth + kScanThreads - 1) / kScanThreads;
  static constexpr uint32_t kHeld = kTaps == 0 ? 1 : kTaps;

  __device__ float output(uint32_t n, uint32_t first, uint32_t t) {
    if constexpr (kTaps == 0) {
      return valid_[n] && first + t < a_.n_tok ? convolve_from_memory(a_, rows_before_, channel_[n], first + t) : 0.0f;
    }
    float sum = bias_[n];
#pragma unroll
    for (uint32_t j = 0; j + 1 < kHeld; ++j) {
      sum += weight_[n][j] * window_[n][j];
      window_[n][j] = j + 2 < kHeld ? window_[n][j + 1] : input_[n][t];
    }
    return silu(sum + weight_[n][kHeld - 1] * input_[n][t]);
  }

  const RecurrentArgs& a_;
  const float* rows_before_;
  uint32_t channel_[kOwn];
  bool valid_[kOwn];
  float bias_[kOwn], weight_[kOwn][kHeld], window_[kOwn][kHeld], input_[kOwn][kScanTokens];
};

// Lengths of the keys and queries in the tile. A warp takes a token at a time.
template <uint32_t kRowQuads>
__device__ inline void scan_lengths(const RecurrentArgs& a, ScanShared<kRowQuads>& s) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t t = threadIdx.x / kWarp; t < kScanTokens; t += kScanThreads / kWarp) {
    const float *q = s.tile[t], *k = q + s.kKeys;
    float qq = 0.0f, kk = 0.0f, kq = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < s.kKeys; i += kWarp) {
      const float x = q[i + lane], y = k[i + lane];
      qq += x * x;
      kk += y * y;
      kq += x * y;
    }
    qq = warp_sum(qq), kk = warp_sum(kk), kq = warp_sum(kq);
    if (lane != 0) continue;
    const float q_scale = 1.0f / sqrtf((qq + kLengthEps) * static_cast<float>(a.key_dim));
    const float k_scale = 1.0f / sqrtf(kk + kLengthEps);
    s.q_scale[t] = q_scale;
    s.k_scale[t] = k_scale;
    s.kq[t] = q_scale * k_scale * kq;
  }
}

// Two columns of the sums: the rows of this thread.
template <uint32_t kRowQuads>
struct ScanSums {
  float2 at[kRowQuads][4];

  // Calls f(sums of a row, its number) for the rows that there are.
  template <class F>
  __device__ void for_rows(uint32_t n_rows, const F& f) {
    const uint32_t lane = threadIdx.x % kScanLanes;
#pragma unroll
    for (uint32_t quad = 0; quad < kRowQuads; ++quad) {
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = 4 * (quad * kScanLanes + lane) + i;
        if (row < n_rows) f(at[quad][i], row);
      }
    }
  }
};

// Four rows of a token's q or k.
template <uint32_t kRowQuads>
struct ScanVector {
  float at[kRowQuads][4];
  __device__ explicit ScanVector(const float* from) {
    const uint32_t lane = threadIdx.x % kScanLanes;
#pragma unroll
    for (uint32_t quad = 0; quad < kRowQuads; ++quad) {
      const float4 x = *reinterpret_cast<const float4*>(from + 4 * (quad * kScanLanes + lane));
      at[quad][0] = x.x, at[quad][1] = x.y, at[quad][2] = x.z, at[quad][3] = x.w;
    }
  }
};

// S^T x of this thread's rows.
template <uint32_t kRowQuads>
__device__ inline float2 scan_product(const ScanSums<kRowQuads>& sums, const ScanVector<kRowQuads>& x) {
  float2 part[2] = {make_float2(0.0f, 0.0f), make_float2(0.0f, 0.0f)};  // shorter chains of dependent sums
#pragma unroll
  for (uint32_t quad = 0; quad < kRowQuads; ++quad) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      part[i % 2].x += sums.at[quad][i].x * x.at[quad][i];
      part[i % 2].y += sums.at[quad][i].y * x.at[quad][i];
    }
  }
  return make_float2(part[0].x + part[1].x, part[0].y + part[1].y);
}

// S = decay * S + k (x) added
template <uint32_t kRowQuads>
__device__ inline void scan_add(ScanSums<kRowQuads>& sums, float decay, const ScanVector<kRowQuads>& k, float2 added) {
#pragma unroll
  for (uint32_t quad = 0; quad < kRowQuads; ++quad) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      float2& sum = sums.at[quad][i];
      sum.x = decay * sum.x + k.at[quad][i] * added.x;
      sum.y = decay * sum.y + k.at[quad][i] * added.y;
    }
  }
}

__device__ inline float team_total(float x) {
#pragma unroll
  for (uint32_t step = 1; step < kScanLanes; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// One token: returns the output of the thread's first column in even lanes, of the second in odd ones.
template <bool kDelta, uint32_t kRowQuads>
__device__ inline float scan_token(const ScanShared<kRowQuads>& s, uint32_t t, float skip, ScanSums<kRowQuads>& sums) {
  const uint32_t lane = threadIdx.x % kWarp;
  const bool odd = lane % 2 != 0;
  const float* tile = s.tile[t];
  const ScanVector<kRowQuads> q(tile), k(tile + s.kKeys);
  const float2 v = *reinterpret_cast<const float2*>(tile + 2 * s.kKeys + threadIdx.x / kScanLanes * 2);
  const float decay = s.gates[t].decay, write = s.gates[t].write;
  if (!kDelta) {
    scan_add(sums, decay, k, make_float2(write * v.x, write * v.y));
    const float2 product = scan_product(sums, q);
    float by_q[2] = {product.x, product.y};
    return team_sum<kScanLanes>(by_q, lane) + skip * (odd ? v.y : v.x);
  }
  const float2 by_k = scan_product(sums, k), product = scan_product(sums, q);
  const float k_scale = s.k_scale[t], seen = decay * k_scale;
  const float2 e = make_float2(write * (v.x - seen * team_total(by_k.x)), write * (v.y - seen * team_total(by_k.y)));
  scan_add(sums, decay, k, make_float2(k_scale * e.x, k_scale * e.y));
  float by_q[2] = {product.x, product.y};
  return s.q_scale[t] * decay * team_sum<kScanLanes>(by_q, lane) + s.kq[t] * (odd ? e.y : e.x);
}

// All threads of the block call it. y is what comes before the norm.
template <bool kDelta, uint32_t kTaps, uint32_t kRowQuads>
__device__ inline void scan_columns(const RecurrentArgs& a, uint32_t h, uint32_t first_column,
                                    ScanShared<kRowQuads>& s) {
  const uint32_t thread = threadIdx.x, column = first_column + thread / kScanLanes * 2;
  const StateView state = view_of(a.state);
  ScanChannels<kTaps, kRowQuads> channels(a, state, h, first_column);
  float alpha = 0.0f, beta = 0.0f;  // of token `thread` of those that were loaded last
  const auto load = [&](uint32_t first) {
    channels.load(first);
    if (thread >= kScanTokens || first + thread >= a.n_tok) return;
    const size_t gate = gate_at(a, first + thread, h);
    alpha = a.alpha[gate];
    if (kDelta) beta = a.beta[gate];
  };
  load(0);
  ScanSums<kRowQuads> sums = {};
  const bool has_columns = column < a.value_dim;
  const size_t at = size_t{h} * a.key_dim * a.value_dim + column;
  if (has_columns) {
    sums.for_rows(a.key_dim, [&](float2& sum, uint32_t row) {
      sum = *reinterpret_cast<const float2*>(state.sums_before + at + size_t{row} * a.value_dim);
    });
  }
  const float skip = kDelta ? 0.0f : a.skip[h];
  const uint32_t mine = thread % kScanLanes;  // lanes 0 and 1 of a team write
  for (uint32_t first = 0; first < a.n_tok; first += kScanTokens) {
    __syncthreads();  // the tokens before are done with
    channels.convolve(first, s);
    if (thread < kScanTokens) s.gates[thread] = gates_of<kDelta>(a, h, alpha, beta);
    __syncthreads();
    load(first + kScanTokens);
    if (kDelta) {
      scan_lengths(a, s);
      __syncthreads();
    }
    const uint32_t n = min(kScanTokens, a.n_tok - first);
#pragma unroll 1
    for (uint32_t t = 0; t < n; ++t) {
      const float o = scan_token<kDelta>(s, t, skip, sums);
      if (mine < 2 && has_columns) a.y[(size_t{first + t} * a.n_heads + h) * a.value_dim + column + mine] = o;
    }
  }
  if (has_columns) {
    sums.for_rows(a.key_dim, [&](float2& sum, uint32_t row) {
      *reinterpret_cast<float2*>(state.sums_after + at + size_t{row} * a.value_dim) = sum;
    });
  }
}

#endif  // __CUDACC__

}  // namespace weir::cuda
