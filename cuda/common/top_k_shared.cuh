// Exact top-k selection over keys in shared memory, with the list in ascending order of rows: as find_threshold and
// take_rows (top_k.cuh), but for a block of exactly kThreads. It has few dependent steps, because at a few thousand
// keys the latency of barriers and dependent instructions takes most of the time, not the number of keys.
#pragma once

#include "cuda/common/top_k.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

inline constexpr uint32_t kMaxRanked = 64;  // keys between two pivots that are ranked by comparing all pairs

// Two counts below 2^16 share one word; the second is shifted by this.
inline constexpr uint32_t kSecondCount = 16;

template <uint32_t kThreads>
struct SharedKeysScratch {
  uint2 bins[kThreads];                 // histogram, two bins per thread; zero before
  uint32_t warps[2][kThreads / kWarp];  // alternating, so that a round needs one barrier
  uint32_t chosen[2][kThreads / kWarp];
  uint32_t ranked[kMaxRanked];
  uint32_t n_ranked;  // zero before
  uint32_t key, n_equal;
  uint32_t bin, n_above, n_in_bin;

  // Called by all threads, before a barrier.
  __device__ void clear() {
    bins[threadIdx.x] = make_uint2(0, 0);
    if (threadIdx.x == 0) n_ranked = 0;
  }
};

// Loads the keys of the thread's four rows, beginning at `row`. Rows beyond n have kKeyNever.
__device__ inline void load_four(const uint32_t* keys, uint32_t n, uint32_t row, uint32_t (&key)[4]) {
  const uint4 four = row < n ? *reinterpret_cast<const uint4*>(keys + row) : make_uint4(0, 0, 0, 0);
  key[0] = four.x, key[1] = four.y, key[2] = four.z, key[3] = four.w;
}

// Calls f(keys of four rows) over all rows, four neighbouring rows per thread. The lanes of a warp stay together.
template <uint32_t kThreads, class F>
__device__ inline void for_fours(const uint32_t* keys, uint32_t n, const F& f) {
#pragma unroll 1
  for (uint32_t first = 0; first + 4 * (threadIdx.x - threadIdx.x % kWarp) < n; first += 4 * kThreads) {
    uint32_t key[4];
    load_four(keys, n, first + 4 * threadIdx.x, key);
    f(key);
  }
}

// Sums one word per warp over the block.
template <uint32_t kThreads>
__device__ inline uint32_t sum_of_warps(uint32_t of_warp, uint32_t* warps) {
  const uint32_t lane = threadIdx.x % kWarp;
  if (lane == 0) warps[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  return sum_of_lanes(lane < kThreads / kWarp ? warps[lane] : 0u);
}

inline constexpr uint32_t kNoBin = 0xFFFFFFFFu;

// Histogram bins for scores of any scale: 32 bins per factor of two, on both sides of zero. They reach from the highest
// score down to 2^-16 of it; below a negative highest score, to 2^16 times its magnitude. Except in the bins at the
// ends, two scores share a bin only when they differ by less than a thirtieth, however far away a few outliers lie. Bin
// 0 holds the highest score.
template <uint32_t kBins>
struct ScoreBins {
  static constexpr int kShift = 18, kSide = kBins / 2;  // ignored low bits of a score; bins on each side of zero
  // The smallest magnitude, without the ignored bits, that has a bin of its own. Smaller ones go to the bins next to
  // zero.
  int least;

  __device__ explicit ScoreBins(uint32_t high_key) {
    const auto high = static_cast<int>(magnitude(high_key) >> kShift);
    least = is_positive(high_key) ? high - (kSide - 1) : high;
  }
  __device__ static bool is_positive(uint32_t key) { return key >> 31 != 0; }
  __device__ static uint32_t magnitude(uint32_t key) { return (is_positive(key) ? key : ~key) & 0x7FFFFFFFu; }
  __device__ uint32_t of(uint32_t key) const {
    const int distance = min(max(static_cast<int>(magnitude(key) >> kShift) - least, 0), kSide - 1);
    return is_positive(key) ? kSide - 1 - distance : kSide + distance;
  }
  // The smallest and the largest key that can be in a bin.
  __device__ uint2 range(uint32_t bin) const {
    const bool positive = bin < kSide;
    const int distance = positive ? kSide - 1 - static_cast<int>(bin) : static_cast<int>(bin) - kSide;
    const uint32_t from = distance == 0 ? 0 : static_cast<uint32_t>(max(distance + least, 0)) << kShift;
    const uint32_t to =
        distance == kSide - 1 ? 0x7FFFFFFFu : (static_cast<uint32_t>(max(distance + least + 1, 0)) << kShift) - 1;
    return positive ? make_uint2(from | 0x80000000u, to | 0x80000000u)
                    : make_uint2(0x7FFFFFFFu - to, 0x7FFFFFFFu - from);
  }
};

// Writes to s the bin of the k-th largest key, the number of keys in the bins above it, and the number in it. No key
// but kKeyAlways exceeds high_key.
template <uint32_t kThreads>
__device__ inline void find_bin(const uint32_t* keys, uint32_t n, uint32_t k, uint32_t high_key,
                                const ScoreBins<2 * kThreads>& bins, SharedKeysScratch<kThreads>& s) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  auto* counts = reinterpret_cast<uint32_t*>(s.bins);
  for_fours<kThreads>(keys, n, [&](const uint32_t(&key)[4]) {
    uint32_t bin[4];
    bool alike = true;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      bin[j] = key[j] - 1 < high_key ? bins.of(key[j]) : kNoBin;
      alike = alike && bin[j] == bin[0];
    }
    // Estimates are often near each other, and atomics of many lanes on one address are slow: a warp whose keys all
    // fall into one bin adds once.
    const uint32_t of_first = __shfl_sync(kAllLanes, bin[0], 0);
    if (__all_sync(kAllLanes, alike && bin[0] == of_first && of_first != kNoBin)) {
      if (lane == 0) atomicAdd(counts + of_first, 4 * kWarp);
      return;
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      if (bin[j] != kNoBin) atomicAdd(counts + bin[j], 1u);
    }
  });
  __syncthreads();
  const uint2 count = s.bins[threadIdx.x];
  uint32_t of_warp;
  uint32_t before = warp_sum_before(count.x + count.y, of_warp);
  if (lane == 0) s.warps[1][warp] = of_warp;
  __syncthreads();
  before += sum_of_lanes(lane < warp ? s.warps[1][lane] : 0u);
  if (before < k && k <= before + count.x + count.y) {
    const bool second = before + count.x < k;
    s.bin = 2 * threadIdx.x + (second ? 1 : 0);
    s.n_above = second ? before + count.x : before;
    s.n_in_bin = second ? count.y : count.x;
  }
  __syncthreads();
}

// Finds the threshold of the selected keys. Selected are the n_forced keys that are kKeyAlways and the k largest of the
// others; 1 <= k <= the number of the others, and none of the others exceeds high_key.
// The histogram gives the bin of the k-th largest key. While more than kMaxRanked keys share its interval, a round
// counts the keys above two pivots and keeps the third that holds the k-th. The pivots divide the interval evenly by
// score and by key in alternating rounds; 21 rounds by key are enough for any keys. The remaining keys are ranked by
// comparing all pairs.
template <uint32_t kThreads>
__device__ inline Threshold find_shared_threshold(const uint32_t* keys, uint32_t n, uint32_t k, uint32_t n_forced,
                                                  uint32_t high_key, SharedKeysScratch<kThreads>& s) {
  const ScoreBins<2 * kThreads> bins(high_key);
  find_bin(keys, n, k, high_key, bins, s);
  // n_low keys, at least k, are above `low`; n_high keys, fewer than k, are above `high`. kKeyAlways is not counted.
  const uint2 range = bins.range(s.bin);
  uint32_t low = max(range.x, 1u) - 1, high = min(range.y, high_key), n_low = s.n_above + s.n_in_bin,
           n_high = s.n_above;
  for (uint32_t round = 0; n_low - n_high > kMaxRanked && high - low > 1; ++round) {
    const uint32_t third = max(1u, (high - low) / 3);
    uint32_t first = low + third, second = high - third;
    if (round % 2 == 0) {
      const float from = score_of_key(low), step = (score_of_key(high) - from) * (1.0f / 3.0f);
      const uint32_t x = key_of_score(from + step), y = key_of_score(from + 2.0f * step);
      if (low < x && x <= y && y < high) first = x, second = y;
    }
    uint32_t count = 0;
    for_fours<kThreads>(keys, n, [&](const uint32_t(&key)[4]) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j)
        count += (key[j] > first ? 1u : 0u) + (key[j] > second ? 1u << kSecondCount : 0u);
    });
    count = sum_of_warps<kThreads>(sum_of_lanes(count), s.warps[round % 2]);
    const uint32_t n_first = (count & 0xFFFFu) - n_forced, n_second = (count >> kSecondCount) - n_forced;
    if (n_second >= k) {
      low = second, n_low = n_second;
    } else if (n_first >= k) {
      low = first, n_low = n_first, high = second, n_high = n_second;
    } else {
      high = first, n_high = n_first;
    }
  }
  if (high - low <= 1) return {high, k - n_high};  // all keys that are left are equal
  for_fours<kThreads>(keys, n, [&](const uint32_t(&key)[4]) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      if (low < key[j] && key[j] <= high) s.ranked[atomicAdd(&s.n_ranked, 1u)] = key[j];
    }
  });
  __syncthreads();
  const uint32_t n_ranked = n_low - n_high, left = k - n_high;
  // Several lanes share the comparisons of one key.
  constexpr uint32_t kSharing = kThreads / kMaxRanked;
  static_assert(kSharing > 0 && kWarp % kSharing == 0);
  const uint32_t own = threadIdx.x / kSharing < n_ranked ? s.ranked[threadIdx.x / kSharing] : kKeyNever;
  uint32_t counts = 0;
#pragma unroll 2
  for (uint32_t i = threadIdx.x % kSharing; i < n_ranked; i += kSharing)
    counts += (s.ranked[i] > own ? 1u : 0u) + (s.ranked[i] == own ? 1u << kSecondCount : 0u);
#pragma unroll
  for (uint32_t i = 1; i < kSharing; i *= 2) counts += __shfl_xor_sync(kAllLanes, counts, i);
  const uint32_t above = counts & 0xFFFFu;
  // All threads with this key write the same values.
  if (own != kKeyNever && above < left && left <= above + (counts >> kSecondCount))
    s.key = own, s.n_equal = left - above;
  __syncthreads();
  return {s.key, s.n_equal};
}

// Calls take(row, place) for the selected rows; `place` is the index in the list, ascending by row.
template <uint32_t kThreads, class Take>
__device__ inline void take_shared_rows(const uint32_t* keys, uint32_t n, Threshold threshold,
                                        SharedKeysScratch<kThreads>& s, const Take& take) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint32_t before_all = 0;
#pragma unroll 1
  for (uint32_t first = 0, part = 0; first < n; first += 4 * kThreads, ++part) {
    const uint32_t row = first + 4 * threadIdx.x;
    uint32_t key[4];
    load_four(keys, n, row, key);
    uint32_t count[4];
    uint32_t of_thread = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const bool is_equal = key[j] == threshold.key && key[j] != kKeyNever;
      count[j] = key[j] > threshold.key ? 1u : is_equal ? 1u << kSecondCount : 0u;
      of_thread += count[j];
    }
    uint32_t of_warp = 0;
    uint32_t before = before_all + warp_sum_before(of_thread, of_warp);
    uint32_t* chosen = s.chosen[part % 2];
    if (lane == 0) chosen[warp] = of_warp;
    __syncthreads();
    const uint32_t other = lane < kThreads / kWarp ? chosen[lane] : 0u;
    before += sum_of_lanes(lane < warp ? other : 0u);
    if (first + 4 * kThreads < n) before_all += sum_of_lanes(other);
    if (of_thread == 0) continue;
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t above = before & 0xFFFFu, equal = before >> kSecondCount;
      if (count[j] == 1 || (count[j] != 0 && equal < threshold.n_equal))
        take(row + j, above + min(equal, threshold.n_equal));
      before += count[j];
    }
  }
}

#endif  // __CUDACC__

}  // namespace weir::cuda
