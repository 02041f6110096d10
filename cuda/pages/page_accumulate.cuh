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

// Executed by all threads of a block. The weights must be visible to all of them, for kLatestLayer the weights of all
// heads.
template <AccumulateRule kRule>
__device__ inline void accumulate_stream(const PageAccumulateArgs& a, uint32_t kv_head) {
  static_assert(kRule == AccumulateRule::kSum || kRule == AccumulateRule::kLatestGroup ||
                kRule == AccumulateRule::kLatestLayer);
  constexpr bool layer = kRule == AccumulateRule::kLatestLayer;
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const uint32_t first = layer ? 0 : kv_head * group, n_heads = layer ? a.n_heads : group;
  const uint32_t n = a.n_pages[kv_head];
  for (uint32_t row = threadIdx.x; row < n; row += blockDim.x) {
    const size_t at = size_t{kv_head} * a.capacity + row;
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
