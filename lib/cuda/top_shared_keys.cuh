// The k largest of keys that lie in shared memory, exactly, and their list in ascending order of rows: as find_threshold and take_rows (top_keys.cuh), for
// a block of kThreads that has a run of consecutive rows for each thread. Made for few steps that wait for one another: at a few thousand keys it is those
// that take the time. Bins for counting would need to know where the scores lie: a few pages far above all others are common, and put the rest into one.
#pragma once

#include "cuda/top_keys.cuh"

namespace weir::cuda {

// Where the key of a row lies: four words of gap after every 32, so that lanes with runs of 8 or 32 rows seldom meet in a bank, and four rows from a
// multiple of four on are one read.
__host__ __device__ constexpr uint32_t key_place(uint32_t row) { return row + row / 32 * 4; }

#ifdef __CUDACC__

inline constexpr uint32_t kMostRanked = 64;  // keys between two pivots that are ranked by comparing all with all

template <uint32_t kThreads>
struct SharedKeysScratch {
  uint32_t warps[2][kThreads / kWarp];  // used in turns, so that a round needs one barrier
  uint32_t ranked[kMostRanked];
  uint32_t n_ranked;  // zero before
  uint32_t key, n_equal;
};

template <uint32_t kThreads>
struct SharedKeys {
  const uint32_t* keys;    // at key_place(row); absent keys behind the last row up to a multiple of four
  uint32_t n, begin, end;  // rows, and those of the thread

  __device__ SharedKeys(const uint32_t* from, uint32_t n_rows) : keys(from), n(n_rows) {
    const uint32_t each = (n + 4 * kThreads - 1) / (4 * kThreads) * 4;
    begin = min(n, threadIdx.x * each);
    end = min(n, begin + each);
  }
  // f(row, key) for the thread's rows. Little unrolled: code that is executed once has to be fetched, which takes longer than it runs.
  template <class F>
  __device__ void for_each(const F& f) const {
#pragma unroll 1
    for (uint32_t row = begin; row < end; row += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(keys + key_place(row));
      f(row, four.x), f(row + 1, four.y), f(row + 2, four.z), f(row + 3, four.w);
    }
  }
};

// Two counts below 2^16 in one word.
inline constexpr uint32_t kSecondCount = 16;

// What the keys that are chosen of rows.n are above. Chosen are those with kKeyAlways, n_forced, and the k largest others, 1 <= k <= their number, none
// of which is above high_key. Pivots close in on the k-th until few keys are left between them, which are ranked.
// They are evenly spread by score, which suits most tables, and by key in turns, which suits those with a few scores far from all others and ends within
// 21 such rounds. (More pivots in a round, or one for each warp, took longer: what is executed once is fetched.)
template <uint32_t kThreads>
__device__ inline Threshold find_shared_threshold(const SharedKeys<kThreads>& rows, uint32_t k, uint32_t n_forced,
                                                  uint32_t low_key, uint32_t high_key, SharedKeysScratch<kThreads>& s) {
  // Others above `low` are at least k, n_low; those above `high` fewer, n_high.
  uint32_t low = 0, high = high_key, n_low = rows.n - n_forced, n_high = 0;
  for (uint32_t round = 0; n_low - n_high > kMostRanked && high - low > 1; ++round) {
    const uint32_t third = max(1u, (high - low) / 3);
    uint32_t first = low + third, second = high - third;
    if (round % 2 == 0 && high > low_key) {
      const float from = score_of_key(max(low, low_key)), step = (score_of_key(high) - from) * (1.0f / 3.0f);
      const uint32_t x = key_of_score(from + step), y = key_of_score(from + 2.0f * step);
      if (low < x && x <= y && y < high) first = x, second = y;
    }
    uint32_t count = 0;
    rows.for_each(
        [&](uint32_t, uint32_t key) { count += (key > first ? 1u : 0u) + (key > second ? 1u << kSecondCount : 0u); });
    count = sum_of_lanes(count);
    uint32_t* warps = s.warps[round % 2];
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = count;
    __syncthreads();
    count = sum_of_lanes(threadIdx.x % kWarp < kThreads / kWarp ? warps[threadIdx.x % kWarp] : 0u);
    const uint32_t n_first = (count & 0xFFFFu) - n_forced, n_second = (count >> kSecondCount) - n_forced;
    if (n_second >= k) {
      low = second, n_low = n_second;
    } else if (n_first >= k) {
      low = first, n_low = n_first, high = second, n_high = n_second;
    } else {
      high = first, n_high = n_first;
    }
  }
  if (high - low <= 1) return {high, k - n_high};  // whatever is left has this key
  rows.for_each([&](uint32_t, uint32_t key) {
    if (low < key && key <= high) s.ranked[atomicAdd(&s.n_ranked, 1u)] = key;
  });
  __syncthreads();
  const uint32_t n = n_low - n_high, left = k - n_high;
  // Some lanes for each key.
  constexpr uint32_t kSharing = kThreads / kMostRanked;
  static_assert(kSharing > 0 && kWarp % kSharing == 0);
  const uint32_t own = threadIdx.x / kSharing < n ? s.ranked[threadIdx.x / kSharing] : kKeyNever;
  uint32_t counts = 0;
#pragma unroll 4
  for (uint32_t i = threadIdx.x % kSharing; i < n; i += kSharing)
    counts += (s.ranked[i] > own ? 1u : 0u) + (s.ranked[i] == own ? 1u << kSecondCount : 0u);
#pragma unroll
  for (uint32_t i = 1; i < kSharing; i *= 2) counts += __shfl_xor_sync(kAllLanes, counts, i);
  const uint32_t above = counts & 0xFFFFu;
  // All rows of this key write the same.
  if (own != kKeyNever && above < left && left <= above + (counts >> kSecondCount))
    s.key = own, s.n_equal = left - above;
  __syncthreads();
  return {s.key, s.n_equal};
}

// Calls take(row, is_chosen, place) for the rows of threads that have a chosen one, `place` counting those in ascending order.
template <uint32_t kThreads, class Take>
__device__ inline void take_shared_rows(const SharedKeys<kThreads>& rows, Threshold threshold,
                                        SharedKeysScratch<kThreads>& s, const Take& take) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t count = 0, of_warp = 0;
  rows.for_each([&](uint32_t, uint32_t key) {
    count += (key > threshold.key ? 1u : 0u) + (key == threshold.key && key != kKeyNever ? 1u << kSecondCount : 0u);
  });
  uint32_t before = warp_sum_before(count, of_warp);
  __syncthreads();  // nobody reads the last round's counts any more
  if (lane == 0) s.warps[0][warp] = of_warp;
  __syncthreads();
  before += sum_of_lanes(lane < warp ? s.warps[0][lane] : 0u);
  if (count == 0) return;
  uint32_t above = before & 0xFFFFu, equal = before >> kSecondCount;
  rows.for_each([&](uint32_t row, uint32_t key) {
    const bool is_above = key > threshold.key, is_equal = key == threshold.key && key != kKeyNever;
    take(row, is_above || (is_equal && equal < threshold.n_equal), above + min(equal, threshold.n_equal));
    above += is_above ? 1u : 0u;
    equal += is_equal ? 1u : 0u;
  });
}

#endif  // __CUDACC__

}  // namespace weir::cuda
