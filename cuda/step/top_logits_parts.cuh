// What one block does for top_logits and read_logits: the best of some rows, their order, and the sum of a part of the
// vocabulary. Apart from the launches, so that tests can run it on the host.
#pragma once

#include "cuda/common/base.cuh"
#include "cuda/common/top_k.cuh"
#include "kv/step_state.h"

namespace weir::cuda {

#ifdef __CUDACC__

inline constexpr uint32_t kTopDigitBits = 11;     // as in page_select: logits share their upper bits
inline constexpr uint32_t kTopSharedRows = 6144;  // keys in shared memory: what the other arrays leave of 48 KiB

struct TopLogitsScratch {
  TopKeysScratch<kTopDigitBits> top;
  unsigned long long sorted[kMaxTopLogits];
  uint32_t keys[kTopSharedRows];
  bool is_last;
};
static_assert(sizeof(TopLogitsScratch) <= 48 << 10);

// kKeyNever of a token that the mask lacks.
__device__ inline uint32_t key_of_logit(const float* logits, const uint32_t* mask, uint32_t token) {
  if (mask != nullptr && (__ldg(mask + token / 32) >> (token % 32) & 1u) == 0) return kKeyNever;
  return key_of_score(logits[token]);
}

// Calls put(row, place, key) for the n best rows, or all rows that have a key if there are no more, and returns how
// many these are; `place` is the index in the list, ascending by row. If not all rows `have_keys`, some may be
// kKeyNever, and there may be fewer than n others.
template <class KeyOf, class Put>
__device__ inline uint32_t list_best(uint32_t n_rows, uint32_t n, bool have_keys, const KeyOf& key_of,
                                     TopLogitsScratch& s, const Put& put) {
  uint32_t n_keys = 0;
  for (uint32_t row = threadIdx.x; row < (have_keys ? min(n_rows, kTopSharedRows) : n_rows); row += blockDim.x) {
    const uint32_t key = key_of(row);
    if (row < kTopSharedRows) s.keys[row] = key;
    n_keys += key != kKeyNever ? 1u : 0u;
  }
  __syncthreads();
  n_keys = have_keys ? n_rows : block_sum(n_keys, s.top.warps);
  const auto kept_key = [&](uint32_t row) { return row < kTopSharedRows ? s.keys[row] : key_of(row); };
  const Threshold threshold = n < n_keys ? find_threshold(n_rows, n, kept_key, s.top) : Threshold{kKeyNever, 0};
  const uint32_t n_taken = take_rows(n_rows, threshold, kept_key, s.top.warps,
                                     [&](uint32_t row, uint32_t place) { put(row, place, kept_key(row)); });
  __syncthreads();
  return n_taken;
}

// Bitonic sort, descending. `size` is a power of two.
__device__ inline void sort_keys(unsigned long long* keys, uint32_t size) {
  for (uint32_t run = 2; run <= size; run *= 2) {
    for (uint32_t step = run / 2; step > 0; step /= 2) {
      for (uint32_t pair = threadIdx.x; pair < size / 2; pair += blockDim.x) {
        const uint32_t low = 2 * pair - (pair & (step - 1)), high = low + step;
        const unsigned long long first = keys[low], second = keys[high];
        if ((first < second) == ((low & run) == 0)) keys[low] = second, keys[high] = first;
      }
      __syncthreads();
    }
  }
}

// Lists the `each` best tokens of the n_rows from `first` on, key and id, ascending by id; kKeyNever where there are
// fewer.
__device__ inline void list_part(const float* logits, const uint32_t* mask, uint32_t first, uint32_t n_rows,
                                 uint32_t each, uint2* list, TopLogitsScratch& s) {
  const uint32_t n_taken = list_best(
      n_rows, each, mask == nullptr, [&](uint32_t row) { return key_of_logit(logits, mask, first + row); }, s,
      [&](uint32_t row, uint32_t place, uint32_t key) { list[place] = make_uint2(key, first + row); });
  for (uint32_t i = n_taken + threadIdx.x; i < min(each, n_rows); i += blockDim.x) list[i] = make_uint2(kKeyNever, 0);
}

// The n best of all candidates, in order. There may be fewer: then the ids behind them are -1.
__device__ inline void merge_lists(const uint2* candidates, uint32_t n_candidates, uint32_t n, bool have_keys,
                                   int32_t* ids, float* values, TopLogitsScratch& s) {
  uint32_t size = 1;
  while (size < n) size *= 2;
  for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) s.sorted[i] = 0;  // smaller than every key
  // Other blocks wrote the candidates: read them from L2, not from this SM's L1.
  const auto key_of = [&](uint32_t i) { return __ldcg(&candidates[i]).x; };
  // Sorted by the key of the logit, then by the lower id.
  list_best(n_candidates, n, have_keys, key_of, s, [&](uint32_t i, uint32_t place, uint32_t key) {
    s.sorted[place] = static_cast<unsigned long long>(key) << 32 | (0xFFFFFFFFu - __ldcg(&candidates[i]).y);
  });
  sort_keys(s.sorted, size);
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    ids[i] = static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(s.sorted[i]));
    values[i] = s.sorted[i] == 0 ? -INFINITY : score_of_key(static_cast<uint32_t>(s.sorted[i] >> 32));
  }
}

// The part of the vocabulary with these logits, into `part`; true in one thread. `warps` [2 * kMaxBlockWarps] are
// shared.
__device__ inline bool sum_part(const float* logits, uint32_t n, float* warps, LogitPart& part) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = blockDim.x / kWarp;
  const auto number = [&](uint32_t i) { return isnan(logits[i]) ? -INFINITY : logits[i]; };
  float best = -INFINITY;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) best = fmaxf(best, number(i));
  best = warp_max(best);
  if (lane == 0) warps[warp] = best;
  __syncthreads();
  best = warp_max(lane < n_warps ? warps[lane] : -INFINITY);
  float sum = 0.0f;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float logit = number(i);
    sum += logit == best ? 1.0f : expf(logit - best);
  }
  sum = warp_sum(sum);
  if (lane == 0) warps[kMaxBlockWarps + warp] = sum;
  __syncthreads();
  sum = warp_sum(lane < n_warps ? warps[kMaxBlockWarps + lane] : 0.0f);
  part = {best, sum};
  return threadIdx.x == 0;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
