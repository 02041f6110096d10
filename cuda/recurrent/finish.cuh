// What follows the scan of a prompt, and in Mamba-2 also a step: norm and gate of the outputs.
#pragma once

#include "cuda/recurrent/recurrent.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

inline constexpr uint32_t kFinishThreads = 256;
inline constexpr uint32_t kFinishWarps = kFinishThreads / kWarp;

// The delta rule: a norm per head, then the gate. One warp takes head `head` of n_tok * n_heads.
__device__ inline void finish_delta_head(const RecurrentArgs& a, size_t head) {
  const uint32_t lane = threadIdx.x % kWarp;
  float* y = a.y + head * a.value_dim;
  const float* z = a.z + head * a.value_dim;
  float values[kMaxValueDim / kWarp];
  float sum = 0.0f;
#pragma unroll
  for (uint32_t n = 0; n < kMaxValueDim / kWarp; ++n) {
    const uint32_t i = lane + n * kWarp;
    values[n] = i < a.value_dim ? y[i] : 0.0f;
    sum += values[n] * values[n];
  }
  const float root = sqrtf(warp_sum(sum) / static_cast<float>(a.value_dim) + a.eps);
#pragma unroll
  for (uint32_t n = 0; n < kMaxValueDim / kWarp; ++n) {
    const uint32_t i = lane + n * kWarp;
    if (i < a.value_dim) y[i] = values[n] / root * a.norm[i] * silu(z[i]);
  }
}

// Mamba-2: the gate, then a norm per group of heads. One block takes a token's group.
__device__ inline void finish_mamba_group(const RecurrentArgs& a, uint32_t tok, uint32_t group,
                                          float (&sums)[kFinishWarps]) {
  const uint32_t inner = a.n_heads * a.value_dim, n = inner / a.n_key_heads, first = group * n;
  float* y = a.y + size_t{tok} * inner + first;
  const float* z = a.z + tok * a.z_stride + first;
  float sum = 0.0f;
  for (uint32_t i = threadIdx.x; i < n; i += kFinishThreads) {
    const float gated = y[i] * silu(z[i]);
    y[i] = gated;
    sum += gated * gated;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < kFinishWarps; ++i) sum += sums[i];
  const float root = sqrtf(sum / static_cast<float>(n) + a.eps);
  for (uint32_t i = threadIdx.x; i < n; i += kFinishThreads) y[i] = y[i] / root * a.norm[first + i];
}

#endif  // __CUDACC__

}  // namespace weir::cuda
