// The k largest of keys that lie in shared memory, exactly, and their list in ascending order of rows: as find_threshold and take_rows (top_keys.cuh), for
// a block of kThreads. Made for few steps that wait for one another: at a few thousand keys it is those that take the time. Bins for counting would need
// to know where the scores lie: a few pages far above all others are common, and put the rest into one.
#pragma once

#include "cuda/top_keys.cuh"

namespace weir::cuda {

// Where the key of a row lies: four words of gap after every 32, so that lanes with runs of 4 or 8 rows seldom meet in a bank, and four rows from a
// multiple of four on are one read.
__host__ __device__ constexpr uint32_t key_place(uint32_t row) { return row + row / 32 * 4; }

#ifdef __CUDACC__

inline constexpr uint32_t kByScore =
    6;  // rounds of pivots evenly spread by score, then by key, which ends after eight more
inline constexpr uint32_t kSecondCount = 16;  // two counts below 2^16 in one word

template <uint32_t kThreads>
struct SharedKeysScratch {
  static constexpr uint32_t kWarps = kThreads / kWarp;
  uint32_t counts[2][kWarps];  // used in turns, so that a round needs one barrier
};

// Keys of n rows at key_place(row), absent ones behind the last up to a multiple of four.
struct SharedKeys {
  const uint32_t* keys;
  uint32_t n;

  // f(row, key) for the rows from `begin` on, four at a time, every `stride`-th four. Little unrolled: code that is executed once has to be fetched, which
  // takes longer than it runs.
  template <class F>
  __device__ void for_each(uint32_t begin, uint32_t end, uint32_t stride, const F& f) const {
#pragma unroll 1
    for (uint32_t row = begin; row < end; row += 4 * stride) {
      const uint4 four = *reinterpret_cast<const uint4*>(keys + key_place(row));
      f(row, four.x), f(row + 1, four.y), f(row + 2, four.z), f(row + 3, four.w);
    }
  }
};

// What the keys that are chosen of rows.n are above. Chosen are those with kKeyAlways, n_forced, and the k largest others, 1 <= k < their number, none
// of which is above high_key; low_key is the lowest above that of -inf. Every warp counts all keys above a pivot of its own; the next pivots lie between
// the two that have the k-th largest between them. They are evenly spread by score, which suits most tables, and by key in turns, which suits those with
// a few scores far from all others, and ends after eight such rounds.
template <uint32_t kThreads>
__device__ inline Threshold find_shared_threshold(const SharedKeys& rows, uint32_t k, uint32_t n_forced,
                                                  uint32_t low_key, uint32_t high_key, SharedKeysScratch<kThreads>& s) {
  constexpr uint32_t kWarps = SharedKeysScratch<kThreads>::kWarps;
  static_assert(kWarps <= kWarp);
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  // Others above `low` are at least k, n_low; those above `high` fewer, n_high.
  uint32_t low = 0, high = high_key, n_low = rows.n - n_forced, n_high = 0;
  for (uint32_t round = 0; n_low != k && high - low > 1; ++round) {
    // Of the warp that has the lane's number. In ascending order, as rounding keeps order.
    const uint32_t width = high - low;
    uint32_t pivot = low + (width > kWarps ? width / (kWarps + 1) * (lane + 1) : min(lane + 1, width - 1));
    if (round % 2 == 0 && high > low_key) {
      const float from = score_of_key(max(low, low_key)), step = (score_of_key(high) - from) / (kWarps + 1);
      pivot = min(max(key_of_score(from + static_cast<float>(lane + 1) * step), low), high);
    }
    const uint32_t own = __shfl_sync(kAllLanes, pivot, warp);
    uint32_t count = 0;
    rows.for_each(4 * lane, rows.n, kWarp, [&](uint32_t, uint32_t key) { count += key > own ? 1u : 0u; });
    count = sum_of_lanes(count);
    uint32_t* counts = s.counts[round % 2];
    if (lane == 0) counts[warp] = count - n_forced;
    __syncthreads();
    count = lane < kWarps ? counts[lane] : 0u;
    const uint32_t n_below = __popc(__ballot_sync(kAllLanes, count >= k));  // pivots that are below the k-th largest
    const uint32_t last = n_below - 1, next = min(n_below, kWarps - 1);
    const uint32_t low_pivot = __shfl_sync(kAllLanes, pivot, last % kWarp),
                   n_last = __shfl_sync(kAllLanes, count, last % kWarp);
    const uint32_t high_pivot = __shfl_sync(kAllLanes, pivot, next), n_next = __shfl_sync(kAllLanes, count, next);
    if (n_below != 0) low = low_pivot, n_low = n_last;
    if (n_below != kWarps) high = high_pivot, n_high = n_next;
  }
  // Either the others above `low` are just those, or whatever is left has the key `high`.
  return n_low == k ? Threshold{low, 0} : Threshold{high, k - n_high};
}

// Calls take(row, is_chosen, place) for the rows of threads that have a chosen one, `place` counting those in ascending order.
template <uint32_t kThreads, class Take>
__device__ inline void take_shared_rows(const SharedKeys& rows, Threshold threshold, SharedKeysScratch<kThreads>& s,
                                        const Take& take) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  // A thread has consecutive rows.
  const uint32_t each = (rows.n + 4 * kThreads - 1) / (4 * kThreads) * 4;
  const uint32_t begin = min(rows.n, threadIdx.x * each), end = min(rows.n, begin + each);
  uint32_t count = 0, of_warp = 0;
  rows.for_each(begin, end, 1, [&](uint32_t, uint32_t key) {
    count += (key > threshold.key ? 1u : 0u) + (key == threshold.key && key != kKeyNever ? 1u << kSecondCount : 0u);
  });
  uint32_t before = warp_sum_before(count, of_warp);
  __syncthreads();  // nobody reads the last round's counts any more
  if (lane == 0) s.counts[0][warp] = of_warp;
  __syncthreads();
  before += sum_of_lanes(lane < warp ? s.counts[0][lane] : 0u);
  if (count == 0) return;
  uint32_t above = before & 0xFFFFu, equal = before >> kSecondCount;
  rows.for_each(begin, end, 1, [&](uint32_t row, uint32_t key) {
    const bool is_above = key > threshold.key, is_equal = key == threshold.key && key != kKeyNever;
    take(row, is_above || (is_equal && equal < threshold.n_equal), above + min(equal, threshold.n_equal));
    above += is_above ? 1u : 0u;
    equal += is_equal ? 1u : 0u;
  });
}

#endif  // __CUDACC__

}  // namespace weir::cuda
