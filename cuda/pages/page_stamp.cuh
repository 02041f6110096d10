// RaaS stamping of one stream by one block: in a kernel of its own (page_stamp.cu), or at the end of a kernel that
// computes the weights.
#pragma once

#include "cuda/common/top_k.cuh"
#include "ops/page_stamp.h"

namespace weir::cuda {

#ifdef __CUDACC__

using StampScratch = TopKeysScratch<8>;  // 1.3 KiB; streams that are stamped have a few hundred pages

// W of the page at index `place` of the weights: the mean (kTopR) or maximum (kAlpha) over the heads of the group.
__device__ inline float stamp_weight(const PageStampArgs& a, uint32_t kv_head, uint32_t place) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const float* weight = a.weight + size_t{kv_head} * group * a.capacity + place;
  float w = weight[0];
  for (uint32_t g = 1; g < group; ++g) {
    const float next = weight[size_t{g} * a.capacity];
    w = !stamps_by_threshold(a.rule) ? w + next : w < next ? next : w;
  }
  return stamps_by_threshold(a.rule) ? w : w / static_cast<float>(group);
}

// Executed by all threads of a block of full warps, at most kMaxBlock. The weights must be visible to all threads. On
// return the writes of other threads may not be visible yet.
__device__ inline void stamp_stream(const PageStampArgs& a, uint32_t kv_head, StampScratch& scratch) {
  const size_t table = size_t{kv_head} * a.capacity;
  const uint32_t* flags = a.flags + table;
  float* score = a.last_score + table;
  const uint32_t n = a.n_pages[kv_head];
  if (a.select != nullptr) {
    for (uint32_t row = threadIdx.x; row < n; row += blockDim.x) score[row] = 0.0f;
    __syncthreads();
    const uint32_t n_listed = a.n_select[kv_head];
    for (uint32_t place = threadIdx.x; place < n_listed; place += blockDim.x)
      score[a.select[table + place]] = stamp_weight(a, kv_head, place);
    __syncthreads();
  }
  const auto is_ranked = [&](uint32_t row) { return a.rank_all || (row + 1 < n && (flags[row] & kPageStays) == 0); };
  uint32_t n_ranked = 0;
  for (uint32_t row = threadIdx.x; row < n; row += blockDim.x) {
    float w = 0.0f;
    if (a.select == nullptr) {
      score[row] = w = stamp_weight(a, kv_head, row);
    } else {
      w = score[row];
    }
    n_ranked += is_ranked(row) ? 1u : 0u;
    if (row + 1 == n || (stamps_by_threshold(a.rule) && w > a.alpha)) a.hit(table + row, a.now);
  }
  if (stamps_by_threshold(a.rule)) return;
  n_ranked = block_sum(n_ranked, scratch.warps);
  const auto n_best = static_cast<uint32_t>(ceilf(__fmul_rn(a.r, static_cast<float>(n_ranked))));
  if (n_best == 0) return;
  const auto key_of = [&](uint32_t row) { return is_ranked(row) ? key_of_score(score[row]) : kKeyNever; };
  const Threshold threshold = n_best < n_ranked ? find_threshold(n, n_best, key_of, scratch) : Threshold{kKeyNever, 0};
  take_rows(n, threshold, key_of, scratch.warps, [&](uint32_t row, uint32_t) { a.hit(table + row, a.now); });
}

#endif  // __CUDACC__

}  // namespace weir::cuda
