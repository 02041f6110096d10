// Accumulates the attention masses of a step as scores of one stream, by one block: in a kernel of its own
// (page_accumulate.cu), or at the end of a kernel that computes the masses.
#pragma once

#include "cuda/common/base.cuh"
#include "cuda/pages/victim.cuh"
#include "ops/page_accumulate.h"

namespace weir::cuda {

#ifdef __CUDACC__

// Adds a mark to the page with the least score among those that may leave. Executed by one warp.
__device__ inline void mark_least(const PageAccumulateArgs& a, uint32_t kv_head) {
  const size_t table = size_t{kv_head} * a.capacity;
  LowestRow lowest;
  for (uint32_t row = threadIdx.x % kWarp; row + 1 < a.n_pages[kv_head]; row += kWarp) {
    if ((a.flags[table + row] & kPageStays) == 0) lowest.take(key_of_score(a.score[table + row]), row);
  }
  const uint32_t row = lowest.of_warp();
  if (threadIdx.x % kWarp == 0 && row != kNoRow) ++a.mark[table + row];
}

// The sum over a block, for all its threads. `warps` has a place for each warp.
__device__ inline float sum_of_block(float x, float* warps) {
  x = warp_sum(x);
  __syncthreads();  // the sums of a call before may still be read
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0.0f;
  for (uint32_t i = 0; i < blockDim.x / kWarp; ++i) sum += warps[i];
  return sum;
}

// noise_factor of lib/ops/step_rules.h.
__device__ inline float page_noise(uint32_t seed, uint32_t stream, uint32_t page_pos) {
  const float u = (static_cast<float>(random_order(seed, stream, 0, page_pos) >> 41) + 0.5f) * 0x1p-23f;
  return -1.0f / (u < 0.5f ? logf(u) : log1pf(u - 1.0f));
}

// kNoisy: the group's softmaxes of noisy logits, head by head.
__device__ inline void add_noisy(const PageAccumulateArgs& a, uint32_t kv_head, uint32_t n) {
  __shared__ float warps[kWarp];
  const size_t table = size_t{kv_head} * a.capacity;
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const float tau = tau_at(a.options, *a.n_tokens + 1);
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const auto weight = [&](uint32_t row) {
      const float x = a.weight[size_t{head} * a.capacity + row] *
                      page_noise(a.options.seed, a.first_stream + kv_head, a.first_pos[table + row]);
      return x >= 0x1p-126f ? expf(logf(x) / tau) : 0.0f;
    };
    float own = 0.0f;
    for (uint32_t row = threadIdx.x; row < n; row += blockDim.x) own += weight(row);
    const float sum = sum_of_block(own, warps);
    for (uint32_t row = threadIdx.x; row < n && sum > 0.0f; row += blockDim.x)
      a.score[table + row] += weight(row) / sum;
  }
}

// kHits: whether a head of the group gives the page at least as much as its tokens have on average of all so far.
__device__ inline bool is_hit(const PageAccumulateArgs& a, uint32_t kv_head, uint32_t row) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const float n = static_cast<float>(*a.n_tokens + 1);
  const float len = static_cast<float>(a.len[size_t{kv_head} * a.capacity + row]);
  bool hit = false;
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    hit |= a.weight[size_t{head} * a.capacity + row] * n >= len;
  return hit;
}

// Executed by all threads of a block. The weights must be visible to all of them, for kLatestLayer the weights of all
// heads.
template <AccumulateRule kRule>
__device__ inline void accumulate_stream(const PageAccumulateArgs& a, uint32_t kv_head) {
  static_assert(WEIR_ACCUMULATE_RULES == 5);
  constexpr bool layer = kRule == AccumulateRule::kLatestLayer;
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const uint32_t first = layer ? 0 : kv_head * group, n_heads = layer ? a.n_heads : group;
  const uint32_t n = a.n_pages[kv_head];
  if constexpr (kRule == AccumulateRule::kNoisy) add_noisy(a, kv_head, n);
  for (uint32_t row = threadIdx.x; row < n && kRule != AccumulateRule::kNoisy; row += blockDim.x) {
    const size_t at = size_t{kv_head} * a.capacity + row;
    if constexpr (kRule == AccumulateRule::kHits) {
      a.score[at] = __fadd_rn(__fmul_rn(a.options.keep, a.score[at]), is_hit(a, kv_head, row) ? 1.0f : 0.0f);
      continue;
    }
    float sum = 0.0f;
    for (uint32_t head = first; head < first + n_heads; ++head) sum += a.weight[size_t{head} * a.capacity + row];
    if constexpr (kRule == AccumulateRule::kSum) {
      a.score[at] += sum;
    } else {
      a.score[at] = sum / static_cast<float>(n_heads) / static_cast<float>(a.len[at]);
    }
  }
  if (a.mark == nullptr || n != a.capacity) return;
  __syncthreads();
  if (threadIdx.x < kWarp) mark_least(a, kv_head);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
