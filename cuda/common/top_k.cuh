// Exact top-k selection over a block's keys: a radix select with ties to the lower row, then the list of the selected
// rows in ascending order. Executed by one whole block of full warps, at most kMaxBlock threads.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

inline constexpr uint32_t kMaxBlock = 1024;
inline constexpr uint32_t kMaxBlockWarps = kMaxBlock / kWarp;

// Keys of rows that never take part and of rows that are always selected. No score maps to either.
inline constexpr uint32_t kKeyNever = 0;
inline constexpr uint32_t kKeyAlways = 0xFFFFFFFFu;

#ifdef __CUDACC__

// Maps a score to a key in the same order. Both zeros have one key; NaN counts as -inf.
__device__ inline uint32_t key_of_score(float score) {
  if (isnan(score)) score = -INFINITY;
  const uint32_t bits = __float_as_uint(score == 0.0f ? 0.0f : score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The inverse of key_of_score.
__device__ inline float score_of_key(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// Sum over a warp: one instruction where the device has one.
__device__ inline uint32_t sum_of_lanes(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAllLanes, x);
#else
  return warp_sum(x);
#endif
}

__device__ inline uint32_t max_of_lanes(uint32_t x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, x);
#else
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, i));
  return x;
#endif
}

// A radix select with digits of kBits: 11 bits need three passes over the keys and 8 KiB of bins, 8 bits four passes
// and 1 KiB.
template <uint32_t kBits>
struct TopKeysScratch {
  uint32_t bins[1u << kBits];
  uint32_t warps[2 * kMaxBlockWarps];
  uint32_t digit, left, in_bin;
};

// Selected are the rows whose key is above `key`, and the first n_equal of the rows with this key.
struct Threshold {
  uint32_t key, n_equal;
};

// Exclusive prefix sum over the lanes of a warp; `total` is the sum over all of them.
__device__ inline uint32_t warp_sum_before(uint32_t x, uint32_t& total) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t sum = x;
#pragma unroll
  for (uint32_t i = 1; i < kWarp; i *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, i);
    if (lane >= i) sum += other;
  }
  total = __shfl_sync(kAllLanes, sum, kWarp - 1);
  return sum - x;
}

// Sum of x over the block, returned to all threads. Keys that were written before the call are visible after it.
__device__ inline uint32_t block_sum(uint32_t x, uint32_t* warps) {
  const uint32_t lane = threadIdx.x % kWarp, n_warps = blockDim.x / kWarp;
  x = sum_of_lanes(x);
  __syncthreads();
  if (lane == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  return sum_of_lanes(lane < n_warps ? warps[lane] : 0u);
}

// Builds the histogram of one digit over the keys that begin with `prefix`. A warp whose digits are all equal adds
// once: estimates are often all equal, and atomics of many lanes on one address are slow.
template <uint32_t kBits, class KeyOf>
__device__ inline void count_digits(uint32_t n, const KeyOf& key_of, uint32_t prefix, uint32_t high_shift,
                                    uint32_t shift, uint32_t digits, TopKeysScratch<kBits>& s) {
  for (uint32_t first = 0; first < n; first += blockDim.x) {
    const uint32_t row = first + threadIdx.x;
    const uint32_t key = row < n ? key_of(row) : kKeyNever;
    const bool counts =
        key != kKeyNever && key != kKeyAlways && (high_shift >= 32 || key >> (high_shift & 31u) == prefix);
    const uint32_t digit = key >> shift & (digits - 1);
    const uint32_t active = __ballot_sync(kAllLanes, counts);
    if (active == 0) continue;
    const uint32_t leader = __ffs(static_cast<int>(active)) - 1u;
    const uint32_t first_digit = __shfl_sync(kAllLanes, digit, leader);
    if (__all_sync(kAllLanes, !counts || digit == first_digit)) {
      if (threadIdx.x % kWarp == leader) atomicAdd(&s.bins[digit], __popc(active));
    } else if (counts) {
      atomicAdd(&s.bins[digit], 1u);
    }
  }
}

// Finds the digit of the k-th largest key: s.digit. s.in_bin keys have it, s.left of them are to be selected.
template <uint32_t kBits>
__device__ inline void find_digit(uint32_t digits, uint32_t k, TopKeysScratch<kBits>& s) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = blockDim.x / kWarp;
  // Thread t takes `each` digits; thread 0 has the largest ones.
  const uint32_t each = (digits + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each;
  uint32_t mine = 0;
  for (uint32_t i = begin; i < begin + each && i < digits; ++i) mine += s.bins[digits - 1 - i];
  uint32_t total = 0;
  uint32_t before = warp_sum_before(mine, total);
  if (lane == 0) s.warps[warp] = total;
  __syncthreads();
  before += sum_of_lanes(lane < warp && lane < n_warps ? s.warps[lane] : 0u);
  if (before < k && k <= before + mine) {
    for (uint32_t i = begin; i < begin + each && i < digits; ++i) {
      const uint32_t count = s.bins[digits - 1 - i];
      if (k <= before + count) {
        s.digit = digits - 1 - i;
        s.left = k - before;
        s.in_bin = count;
        break;
      }
      before += count;
    }
  }
  __syncthreads();
}

// Finds the threshold of the k largest keys. kKeyNever and kKeyAlways are not counted; k is at least 1 and at most the
// number of the other keys. key_of(row) must be visible to all threads.
template <uint32_t kBits, class KeyOf>
__device__ inline Threshold find_threshold(uint32_t n, uint32_t k, const KeyOf& key_of, TopKeysScratch<kBits>& s) {
  uint32_t prefix = 0, left_bits = 32;
  while (left_bits > 0) {
    const uint32_t bits = min(kBits, left_bits), digits = 1u << bits, high_shift = left_bits;
    left_bits -= bits;
    for (uint32_t i = threadIdx.x; i < digits; i += blockDim.x) s.bins[i] = 0;
    __syncthreads();
    count_digits(n, key_of, prefix, high_shift, left_bits, digits, s);
    __syncthreads();
    find_digit(digits, k, s);
    prefix = prefix << bits | s.digit;
    k = s.left;
    // All keys with this prefix are selected: their other digits do not matter.
    if (s.in_bin == k && left_bits > 0) return {max(prefix << left_bits, 1u) - 1, 0};
  }
  return {prefix, k};
}

// Calls take(row, place) for the selected rows; `place` is the index in the list, ascending by row. Returns the number
// of selected rows.
template <class KeyOf, class Take>
__device__ inline uint32_t take_rows(uint32_t n, Threshold threshold, const KeyOf& key_of, uint32_t* warps,
                                     const Take& take) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = blockDim.x / kWarp;
  const uint32_t below = (1u << lane) - 1;
  // A warp takes consecutive rows.
  const uint32_t each = (n + blockDim.x - 1) / blockDim.x * kWarp;
  const uint32_t begin = warp * each, end = min(n, begin + each);
  uint32_t n_above = 0, n_equal = 0;
  for (uint32_t first = begin; first < end; first += kWarp) {
    const uint32_t key = first + lane < end ? key_of(first + lane) : kKeyNever;
    n_above += __popc(__ballot_sync(kAllLanes, key > threshold.key));
    n_equal += __popc(__ballot_sync(kAllLanes, key == threshold.key && key != kKeyNever));
  }
  __syncthreads();
  if (lane == 0) {
    warps[warp] = n_above;
    warps[kMaxBlockWarps + warp] = n_equal;
  }
  __syncthreads();
  uint32_t total_above = 0, total_equal = 0;
  uint32_t above = warp_sum_before(lane < n_warps ? warps[lane] : 0u, total_above);
  uint32_t equal = warp_sum_before(lane < n_warps ? warps[kMaxBlockWarps + lane] : 0u, total_equal);
  above = __shfl_sync(kAllLanes, above, warp);
  equal = __shfl_sync(kAllLanes, equal, warp);
  for (uint32_t first = begin; first < end; first += kWarp) {
    const uint32_t row = first + lane;
    const uint32_t key = row < end ? key_of(row) : kKeyNever;
    const uint32_t are_above = __ballot_sync(kAllLanes, key > threshold.key);
    const uint32_t are_equal = __ballot_sync(kAllLanes, key == threshold.key && key != kKeyNever);
    const uint32_t equal_before = equal + __popc(are_equal & below);
    const bool taken =
        (are_above >> lane & 1u) != 0 || ((are_equal >> lane & 1u) != 0 && equal_before < threshold.n_equal);
    if (taken) take(row, above + __popc(are_above & below) + min(equal_before, threshold.n_equal));
    above += __popc(are_above);
    equal += __popc(are_equal);
  }
  return total_above + min(total_equal, threshold.n_equal);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
