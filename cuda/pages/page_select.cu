// Computes: the page lists of page_select.
// Launch: one block per KV head, or per query head for lists of their own.
// Numerics: as the reference. For mean and variance a warp sums in f32 relative to a typical score, and the warps' sums
// are joined in f64; other sums are f32; all in a fixed order. The top-k selection is exact.
// Assumes: capacity and groups below 2^31. flags and n_pages are read before the previous kernel has ended: they must
// have been written by kernels before it, and it must call start_next() after its own wait_for_previous().
// Traffic: the scores once, and where mean and variance are needed once more from L1.
// Papers: as lib/ops/page_select_ref.cpp.
#include <algorithm>

#include "cuda/common/top_k.cuh"
#include "cuda/ops.h"
#include "ops/page_select.h"
#include "ops/table.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 1024;
// Scores of one stream share their upper eight bits, and with 8-bit digits they would fall into few bins.
constexpr uint32_t kDigitBits = 11;
// Keys in shared memory, 32 KiB; the keys of later rows are computed again when needed.
constexpr uint32_t kSharedRows = 8192;
// Rows per thread whose keys fit in registers; longer tables are read several times.
constexpr uint32_t kMaxRows = 8;
constexpr uint32_t kMaxRanked = 256;  // keys of one bin that are ranked by comparing all pairs
constexpr uint32_t kReadAhead = 8;    // scores that a thread loads at once
constexpr float kMinPlain = 1e-30f;   // variances from this to its inverse have a square root in f32
// A variance this small relative to the sum of squares that it was subtracted from is rounding error.
constexpr double kAlike = 1e-14;
constexpr uint32_t kStatHeads = kBlock / kWarp;  // heads whose statistics are computed at once

// Statistics of the scored rows of a head. For the softmax: maximum and log of the sum. For max_z: the mean in two
// parts, and 1 / standard deviation.
struct HeadStats {
  float mean, mean_rest, per_deviation;  // per_deviation is 0 when all rows are equal
  float high, log_sum;
};

struct Scratch {
  TopKeysScratch<kDigitBits> top;
  HeadStats head[kStatHeads];
  double sums[2 * kMaxBlockWarps];
  uint32_t counts[kMaxBlockWarps];
  uint32_t lows[kMaxBlockWarps], highs[kMaxBlockWarps], taken[kMaxBlockWarps];
  uint32_t ranked[kMaxRanked];
  uint32_t n_ranked, key, n_equal;
};

__device__ inline float number(float x) { return isnan(x) ? -INFINITY : x; }

// As std::max: if the two do not compare, the first.
__device__ inline float larger(float x, float y) { return x < y ? y : x; }

struct Stream {
  const PageSelectArgs& a;
  uint32_t kv_head, n;
  const uint32_t* flag;

  __device__ Stream(const PageSelectArgs& args, uint32_t head)
      : a(args), kv_head(head), n(args.n_pages[head]), flag(args.flags + size_t{head} * args.capacity) {}
  __device__ uint32_t group() const { return a.n_heads / a.n_kv_heads; }
  __device__ const float* score(uint32_t g) const { return a.score + (size_t{kv_head} * group() + g) * a.capacity; }
  __device__ bool competes(uint32_t row) const {
    return a.candidate_flags == 0 || (flag[row] & a.candidate_flags) != 0;
  }
  __device__ bool forced(uint32_t row) const {
    return row + 1 == n || row < a.n_sink_pages || (flag[row] & kPageKept) != 0;
  }
  __device__ bool scored(uint32_t row) const { return row + 1 < n && competes(row); }
};

// Sums x over the warp into the even lanes, and y into the odd lanes.
__device__ inline float sum_two(float x, float y) {
  const bool odd = (threadIdx.x & 1) != 0;
  float sum = (odd ? y : x) + __shfl_xor_sync(kAllLanes, odd ? x : y, 1);
#pragma unroll
  for (uint32_t i = 2; i < kWarp; i *= 2) sum += __shfl_xor_sync(kAllLanes, sum, i);
  return sum;
}

// A finite score near which sums are taken, the same for all warps. Of 32 rows spread over the stream it is one near
// the middle, which is seldom far from the mean; if none of them is usable, any row's. Executed by one warp.
__device__ inline float typical_score(const Stream& s, const float* score) {
  const uint32_t lane = threadIdx.x % kWarp, row = s.n / kWarp * lane + lane * (s.n % kWarp) / kWarp;
  float x = score[row];
  uint32_t usable = __ballot_sync(kAllLanes, s.scored(row) && isfinite(x));
  for (uint32_t first = 0; usable == 0 && first < s.n; first += kWarp) {
    const uint32_t next = min(first + lane, s.n - 1);
    x = score[next];
    usable = __ballot_sync(kAllLanes, s.scored(next) && isfinite(x));
  }
  if (usable == 0) return 0.0f;
  const uint32_t lower = usable & 0xFFFFu;
  return __shfl_sync(kAllLanes, x, 31 - __clz(static_cast<int>(lower != 0 ? lower : usable)));
}

// Sum of the values that the warps [first, first + n) left, in this order.
template <class T>
__device__ inline T sum_of(const T* values, uint32_t first, uint32_t n) {
  T sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += values[first + i];
  return sum;
}

// The warps of a head when n_heads share the block.
struct Team {
  uint32_t size, head, place;  // head >= n_heads: nothing to do
  __device__ explicit Team(uint32_t n_heads) : size(blockDim.x / kWarp / n_heads) {
    const uint32_t warp = threadIdx.x / kWarp;
    head = warp / size;
    place = warp % size;
  }
  __device__ uint32_t begin() const { return place * kWarp + threadIdx.x % kWarp; }
  __device__ uint32_t stride() const { return size * kWarp; }
};

// Mean and standard deviation over the scored rows of the heads [first, first + n_heads). Sums are taken relative to
// one row's score, which loses no precision when scores are far from zero and close to each other. per_row: 1 / (n -
// 1), which the caller divides while it waits for the previous kernel.
__device__ void deviation_stats(const Stream& s, uint32_t first, uint32_t n_heads, double per_row, Scratch& shared) {
  const Team team(n_heads);
  const bool works = team.head < n_heads;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float* score = s.score(first + (works ? team.head : 0));
  float warp_total = 0.0f, warp_square = 0.0f, about = 0.0f;
  uint32_t count = 0;
  if (works) {
    about = typical_score(s, score);
    const uint32_t stride = team.stride();
    for (uint32_t from = team.begin(); from - lane < s.n; from += kReadAhead * stride) {
      float x[kReadAhead], square[kReadAhead];
      bool counts[kReadAhead];
#pragma unroll
      for (uint32_t i = 0; i < kReadAhead; ++i) {
        const uint32_t row = from + i * stride;
        counts[i] = row + 1 < s.n;
        x[i] = score[min(row, s.n - 1)];
      }
      if (s.a.candidate_flags != 0) {
#pragma unroll
        for (uint32_t i = 0; i < kReadAhead; ++i)
          counts[i] = counts[i] && (s.flag[from + i * stride] & s.a.candidate_flags) != 0;
      }
#pragma unroll
      for (uint32_t i = 0; i < kReadAhead; ++i) {
        counts[i] = counts[i] && number(x[i]) != -INFINITY;
        x[i] = counts[i] ? x[i] - about : 0.0f;
        square[i] = x[i] * x[i];
        count += counts[i] ? 1u : 0u;
      }
      // Summed in pairs, pairs of pairs and so on.
#pragma unroll
      for (uint32_t half = kReadAhead / 2; half > 0; half /= 2) {
#pragma unroll
        for (uint32_t i = 0; i < half; ++i) x[i] += x[i + half], square[i] += square[i + half];
      }
      warp_total += x[0];
      warp_square += square[0];
    }
  }
  warp_total = sum_two(warp_total, warp_square);
  count = sum_of_lanes(count);
  if (lane < 2) shared.sums[lane * kMaxBlockWarps + warp] = double{warp_total};
  if (lane == 0) shared.counts[warp] = count;
  __syncthreads();
  if (works && team.place == 0) {
    const bool has_part = lane < team.size;
    double sum = has_part ? shared.sums[warp + lane] : 0.0;
    double square = has_part ? shared.sums[kMaxBlockWarps + warp + lane] : 0.0;
    count = sum_of_lanes(has_part ? shared.counts[warp + lane] : 0u);
    for (uint32_t i = 1; i < team.size; i *= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, i);
      square += __shfl_xor_sync(kAllLanes, square, i);
    }
    if (count + 1 != s.n) per_row = 1.0 / count;
    const double mean = sum * per_row, variance = (square - sum * mean) * per_row;
    const auto near_variance = static_cast<float>(variance), near_mean = static_cast<float>(mean);
    const bool is_plain = near_variance > kMinPlain && near_variance < 1.0f / kMinPlain;
    HeadStats h = {about + near_mean, 0.0f, 0.0f, 0.0f, 0.0f};
    h.mean_rest = static_cast<float>(double{about} - double{h.mean} + mean);
    if (variance > kAlike * square * per_row)
      h.per_deviation = is_plain ? rsqrtf(near_variance) : static_cast<float>(rsqrt(variance));
    if (lane == 0) shared.head[team.head] = h;
  }
  __syncthreads();
}

// Maximum and log of the sum for the softmax over the scored rows of the heads [first, first + n_heads).
__device__ void softmax_stats(const Stream& s, uint32_t first, uint32_t n_heads, Scratch& shared) {
  const Team team(n_heads);
  const bool works = team.head < n_heads;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float* score = s.score(first + (works ? team.head : 0));
  float high = -INFINITY;
  if (works) {
#pragma unroll 4
    for (uint32_t row = team.begin(); row < s.n; row += team.stride()) {
      if (s.scored(row)) high = larger(high, __fmul_rn(s.a.scale, number(score[row])));
    }
  }
  high = warp_max(high);
  if (lane == 0) shared.sums[warp] = double{high};
  __syncthreads();
  float sum = 0.0f;
  if (works) {
    for (uint32_t i = 0; i < team.size; ++i)
      high = larger(high, static_cast<float>(shared.sums[team.head * team.size + i]));
    if (high != -INFINITY) {
#pragma unroll 4
      for (uint32_t row = team.begin(); row < s.n; row += team.stride()) {
        if (s.scored(row)) sum += expf(__fmul_rn(s.a.scale, number(score[row])) - high);
      }
    }
  }
  sum = ::weir::cuda::warp_sum(sum);
  __syncthreads();
  if (lane == 0) shared.sums[warp] = double{sum};
  __syncthreads();
  if (works && team.place == 0 && lane == 0) {
    const auto total = static_cast<float>(sum_of(shared.sums, team.head * team.size, team.size));
    shared.head[team.head] = {0.0f, 0.0f, 0.0f, high, logf(total)};
  }
  __syncthreads();
}

__device__ inline float deviation(float x, const HeadStats& h) {
  if (number(x) == -INFINITY) return -INFINITY;
  return h.per_deviation > 0.0f ? (x - h.mean - h.mean_rest) * h.per_deviation : 0.0f;
}

__device__ inline float log_probability(float x, float scale, const HeadStats& h) {
  if (h.high == -INFINITY) return -INFINITY;
  return __fmul_rn(scale, number(x)) - (h.high + h.log_sum);
}

__device__ inline float log_sum(float x, float y) {
  const float more = larger(x, y), less = y < x ? y : x;
  return less == -INFINITY ? more : more + log1pf(expf(less - more));
}

// Joins one more head's estimate to `total`. g is the head's index in the statistics; `is_first`: the group's first
// head.
template <AggMode kAgg>
__device__ inline float join_head(const Stream& s, float x, uint32_t g, bool is_first, float total,
                                  const Scratch& shared) {
  float next = number(x);
  if constexpr (kAgg == AggMode::kMaxZ) next = deviation(x, shared.head[g]);
  if constexpr (kAgg == AggMode::kSumProb || kAgg == AggMode::kMaxProb)
    next = log_probability(x, s.a.scale, shared.head[g]);
  if (is_first) return next;
  if constexpr (kAgg == AggMode::kSumProb) return log_sum(total, next);
  if constexpr (agg_is_mean(kAgg)) return total + next;
  static_assert(kAgg == AggMode::kSumProb || agg_is_mean(kAgg) || kAgg == AggMode::kMaxProb ||
                kAgg == AggMode::kMaxRaw || kAgg == AggMode::kMaxZ);
  return larger(total, next);
}

// The score of a row over the heads [first, first + n_heads), continued from `total`.
template <AggMode kAgg>
__device__ inline float join_heads(const Stream& s, uint32_t row, uint32_t first, uint32_t n_heads, float total,
                                   const Scratch& shared) {
  for (uint32_t g = 0; g < n_heads; ++g)
    total = join_head<kAgg>(s, s.score(first + g)[row], g, first + g == 0, total, shared);
  return total;
}

// group_score of the stream. Groups of more than kStatHeads heads are done in several rounds, which continue from the
// scores that the round before wrote.
template <AggMode kAgg>
__device__ void score_group(const Stream& s, Scratch& shared) {
  float* out = s.a.group_score + size_t{s.kv_head} * s.a.capacity;
  const uint32_t group = s.group();
  for (uint32_t first = 0; first < group; first += kStatHeads) {
    const uint32_t n_heads = min(kStatHeads, group - first);
    if constexpr (kAgg == AggMode::kMaxZ) deviation_stats(s, first, n_heads, 1.0 / (s.n - 1.0), shared);
    if constexpr (kAgg == AggMode::kSumProb || kAgg == AggMode::kMaxProb) softmax_stats(s, first, n_heads, shared);
    for (uint32_t row = threadIdx.x; row < s.n; row += blockDim.x) {
      float total = 0.0f;
      if (s.scored(row)) {
        total = join_heads<kAgg>(s, row, first, n_heads, first == 0 ? 0.0f : out[row], shared);
        if (agg_is_mean(kAgg) && first + n_heads == group) total /= static_cast<float>(group);
      }
      out[row] = total;
    }
    __syncthreads();
  }
}

// Lists the pages of the stream, or of one head, by `score`.
__device__ void list_pages(const Stream& s, const float* score, uint32_t list, uint32_t* keys, Scratch& shared) {
  const auto make_key = [&](uint32_t row) {
    return s.competes(row) && !s.forced(row) ? key_of_score(score[row]) : kKeyAlways;
  };
  const uint32_t n_kept = min(kSharedRows, s.a.capacity);
  uint32_t n_forced = 0, n_open = 0;  // of the pages that compete: those that are listed anyway, and the others
  for (uint32_t row = threadIdx.x; row < s.n; row += blockDim.x) {
    const uint32_t key = make_key(row);
    if (row < n_kept) keys[row] = key;
    n_open += key != kKeyAlways ? 1u : 0u;
    n_forced += key == kKeyAlways && s.competes(row) ? 1u : 0u;
  }
  n_forced = block_sum(n_forced, shared.top.warps);
  n_open = block_sum(n_open, shared.top.warps);
  const auto key_of = [&](uint32_t row) { return row < n_kept ? keys[row] : make_key(row); };
  const uint32_t n_best = s.a.budget - min(s.a.budget, n_forced);
  Threshold threshold = {kKeyNever, 0};  // all rows
  if (n_best == 0) {
    threshold = {kKeyAlways - 1, 0};
  } else if (n_best < n_open) {
    threshold = find_threshold(s.n, n_best, key_of, shared.top);
  }
  uint32_t* select = s.a.select + size_t{list} * s.a.capacity;
  const uint32_t n =
      take_rows(s.n, threshold, key_of, shared.top.warps, [&](uint32_t row, uint32_t place) { select[place] = row; });
  if (threadIdx.x == 0) s.a.n_select[list] = n;
}

// The rows whose keys a thread has in registers: a warp takes consecutive rows, a lane every 32nd of them.
template <uint32_t kRows>
struct OwnRows {
  uint32_t begin, end;                // of the warp
  uint32_t competes = 0, forced = 0;  // one bit per row

  __device__ explicit OwnRows(const Stream& s) {
    const uint32_t each = (s.n + kBlock - 1) / kBlock * kWarp;
    begin = threadIdx.x / kWarp * each;
    end = min(s.n, begin + each);
    uint32_t flag[kRows];
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) flag[i] = has(i) ? s.flag[row(i)] : 0;
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      if (!has(i)) continue;
      const bool is_forced = row(i) + 1 == s.n || row(i) < s.a.n_sink_pages || (flag[i] & kPageKept) != 0;
      if (s.a.candidate_flags == 0 || (flag[i] & s.a.candidate_flags) != 0) competes |= 1u << i;
      if (is_forced) forced |= 1u << i;
    }
  }
  __device__ uint32_t row(uint32_t i) const { return begin + i * kWarp + threadIdx.x % kWarp; }
  __device__ bool has(uint32_t i) const { return row(i) < end; }
  __device__ bool is_open(uint32_t i) const { return (competes & ~forced) >> i & 1u; }
};

// group_score of the thread's rows, written to memory and to `total`.
template <AggMode kAgg, uint32_t kRows>
__device__ inline void join_rows(const Stream& s, const OwnRows<kRows>& rows, float (&total)[kRows], double per_row,
                                 Scratch& shared) {
  constexpr uint32_t kHeads = kRows <= 2 ? 4 : 2;  // heads whose scores are loaded at once
  const uint32_t group = s.group();
  if constexpr (kAgg == AggMode::kMaxZ) deviation_stats(s, 0, group, per_row, shared);
  if constexpr (kAgg == AggMode::kSumProb || kAgg == AggMode::kMaxProb) softmax_stats(s, 0, group, shared);
  for (uint32_t first = 0; first < group; first += kHeads) {
    float x[kHeads][kRows];
#pragma unroll
    for (uint32_t g = 0; g < kHeads; ++g) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        x[g][i] = first + g < group && rows.has(i) ? s.score(first + g)[rows.row(i)] : 0.0f;
    }
#pragma unroll
    for (uint32_t g = 0; g < kHeads; ++g) {
      if (first + g >= group) break;
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i)
        total[i] = join_head<kAgg>(s, x[g][i], first + g, first + g == 0, total[i], shared);
    }
  }
  float* out = s.a.group_score + size_t{s.kv_head} * s.a.capacity;
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    if (!rows.has(i)) continue;
    if (agg_is_mean(kAgg)) total[i] /= static_cast<float>(group);
    if (rows.row(i) + 1 == s.n || (rows.competes >> i & 1u) == 0) total[i] = 0.0f;
    out[rows.row(i)] = total[i];
  }
}

// Threshold of the n_best largest keys among the rows that compete for the budget. A histogram divides the range from
// the lowest score above -inf to the highest into bins of equal width. The bin of the threshold mostly has few keys,
// which are ranked. Otherwise a radix select runs over the keys, in shared memory.
template <uint32_t kRows>
__device__ inline Threshold own_threshold(const Stream& s, const OwnRows<kRows>& rows, const uint32_t (&key)[kRows],
                                          uint32_t n_best, uint32_t low_key, uint32_t high_key, uint32_t* keys,
                                          Scratch& shared) {
  constexpr uint32_t kBins = 1u << kDigitBits;
  const float low = score_of_key(low_key), scale = kBins / (score_of_key(high_key) - low);
  if (low_key < high_key && scale > 0.0f && isfinite(scale)) {
    uint32_t bin[kRows];
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      if (!rows.is_open(i)) continue;
      bin[i] = min(kBins - 1, static_cast<uint32_t>(fmaxf((score_of_key(key[i]) - low) * scale, 0.0f)));
      atomicAdd(&shared.top.bins[bin[i]], 1u);
    }
    __syncthreads();
    find_digit(kBins, n_best, shared.top);
    const uint32_t chosen_bin = shared.top.digit, left = shared.top.left;
    if (shared.top.in_bin <= kMaxRanked) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) {
        if (rows.is_open(i) && bin[i] == chosen_bin) shared.ranked[atomicAdd(&shared.n_ranked, 1u)] = key[i];
      }
      __syncthreads();
      const uint32_t n = shared.n_ranked;
      if (threadIdx.x < n) {
        const uint32_t mine = shared.ranked[threadIdx.x];
        uint32_t above = 0, equal = 0;
        for (uint32_t i = 0; i < n; ++i) {
          const uint32_t other = shared.ranked[i];
          above += other > mine ? 1u : 0u;
          equal += other == mine ? 1u : 0u;
        }
        // All threads with this key write the same values.
        if (above < left && left <= above + equal) shared.key = mine, shared.n_equal = left - above;
      }
      __syncthreads();
      return {shared.key, shared.n_equal};
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    if (rows.has(i)) keys[rows.row(i)] = key[i];
  }
  return find_threshold(
      s.n, n_best, [&](uint32_t row) { return keys[row]; }, shared.top);
}

// Lists the thread's rows by their `score`.
template <uint32_t kRows>
__device__ inline void list_own_rows(const Stream& s, const OwnRows<kRows>& rows, const float (&score)[kRows],
                                     uint32_t list, uint32_t* keys, Scratch& shared) {
  // Two counts in one word: both are below 2^16, as there are at most kMaxRows * kBlock rows.
  constexpr uint32_t kHalf = 16;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, before = (1u << lane) - 1;
  const uint32_t nothing = key_of_score(-INFINITY);
  uint32_t key[kRows], counts = 0, not_low = 0, high = 0;  // not_low: the complement of the lowest key
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    key[i] = !rows.has(i) ? kKeyNever : rows.is_open(i) ? key_of_score(score[i]) : kKeyAlways;
    if (rows.is_open(i)) {
      high = max(high, key[i]);
      if (key[i] != nothing) not_low = max(not_low, ~key[i]);
    }
  }
  counts = __popc(rows.competes & rows.forced) | __popc(rows.competes & ~rows.forced) << kHalf;
  counts = sum_of_lanes(counts);
  not_low = max_of_lanes(not_low);
  high = max_of_lanes(high);
  if (lane == 0) shared.counts[warp] = counts, shared.lows[warp] = not_low, shared.highs[warp] = high;
  __syncthreads();
  counts = sum_of_lanes(shared.counts[lane]);
  const uint32_t n_forced = counts & 0xFFFFu, n_open = counts >> kHalf;
  const uint32_t n_best = s.a.budget - min(s.a.budget, n_forced);
  Threshold threshold = {kKeyNever, 0};  // all rows
  if (n_best == 0) {
    threshold = {kKeyAlways - 1, 0};
  } else if (n_best < n_open) {
    not_low = max_of_lanes(shared.lows[lane]);
    high = max_of_lanes(shared.highs[lane]);
    threshold = own_threshold(s, rows, key, n_best, ~not_low, high, keys, shared);
  }
  uint32_t taken = 0;
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    taken += __popc(__ballot_sync(kAllLanes, key[i] > threshold.key)) |
             __popc(__ballot_sync(kAllLanes, key[i] == threshold.key && key[i] != kKeyNever)) << kHalf;
  }
  if (lane == 0) shared.taken[warp] = taken;
  __syncthreads();
  taken = shared.taken[lane];
  const uint32_t all = sum_of_lanes(taken);
  taken = sum_of_lanes(lane < warp ? taken : 0u);
  uint32_t above = taken & 0xFFFFu, equal = taken >> kHalf;
  uint32_t* select = s.a.select + size_t{list} * s.a.capacity;
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    const bool is_above = key[i] > threshold.key, is_equal = key[i] == threshold.key && key[i] != kKeyNever;
    const uint32_t are_above = __ballot_sync(kAllLanes, is_above), are_equal = __ballot_sync(kAllLanes, is_equal);
    const uint32_t equal_before = equal + __popc(are_equal & before);
    if (is_above || (is_equal && equal_before < threshold.n_equal))
      select[above + __popc(are_above & before) + min(equal_before, threshold.n_equal)] = rows.row(i);
    above += __popc(are_above);
    equal += __popc(are_equal);
  }
  if (threadIdx.x == 0) s.a.n_select[list] = (all & 0xFFFFu) + min(all >> kHalf, threshold.n_equal);
}

template <AggMode kAgg, uint32_t kRows>
__device__ inline void select_own_rows(const Stream& s, uint32_t list, uint32_t* keys, Scratch& shared) {
  const OwnRows<kRows> rows(s);
  for (uint32_t i = threadIdx.x; i < 1u << kDigitBits; i += kBlock) shared.top.bins[i] = 0;
  if (threadIdx.x == 0) shared.n_ranked = 0;
  const double per_row = kAgg == AggMode::kMaxZ ? 1.0 / (s.n - 1.0) : 0.0;
  wait_for_previous();
  start_next();
  float score[kRows] = {};
  if constexpr (kAgg == AggMode::kQHead) {
    if (list % s.group() == 0) join_rows<kAgg>(s, rows, score, per_row, shared);
    const float* own = s.score(list % s.group());
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) score[i] = rows.has(i) ? own[rows.row(i)] : 0.0f;
  } else {
    join_rows<kAgg>(s, rows, score, per_row, shared);
  }
  list_own_rows(s, rows, score, list, keys, shared);
}

template <AggMode kAgg>
__global__ void __launch_bounds__(kBlock, 1) page_select_kernel(const PageSelectArgs a) {
  extern __shared__ uint32_t keys[];
  __shared__ Scratch shared;
  const uint32_t list = blockIdx.x, group = a.n_heads / a.n_kv_heads;
  const Stream s(a, kAgg == AggMode::kQHead ? list / group : list);
  if (group <= kStatHeads && s.n <= 2 * kBlock) {
    select_own_rows<kAgg, 2>(s, list, keys, shared);
    return;
  }
  if (group <= kStatHeads && s.n <= kMaxRows * kBlock) {
    select_own_rows<kAgg, kMaxRows>(s, list, keys, shared);
    return;
  }
  wait_for_previous();
  start_next();
  if constexpr (kAgg == AggMode::kQHead) {
    if (list % group == 0) score_group<kAgg>(s, shared);
    list_pages(s, s.score(list % group), list, keys, shared);
  } else {
    score_group<kAgg>(s, shared);
    list_pages(s, a.group_score + size_t{list} * a.capacity, list, keys, shared);
  }
}

template <AggMode kAgg>
Status launch_select(OpContext& cx, const PageSelectArgs& a) {
  const uint32_t n_lists = kAgg == AggMode::kQHead ? a.n_heads : a.n_kv_heads;
  const size_t key_bytes = size_t{std::min(kSharedRows, a.capacity)} * sizeof(uint32_t);
  return launch("page_select", page_select_kernel<kAgg>, n_lists, kBlock, key_bytes, stream_of(cx), true, a);
}

}  // namespace

// The scores that a selection computes go to its arguments; it needs no scratch.
uint64_t page_select_scratch_bytes(const OpShapes&) { return 0; }

Status page_select(OpContext& cx, const PageSelectArgs& a) {
  static_assert(kMaxRows * kBlock <= kSharedRows, "keys in registers fit into shared memory");
  static_assert(sizeof(Scratch) + kSharedRows * sizeof(uint32_t) <= 48 * 1024, "what a block may have without asking");
  switch (a.agg) {
    case AggMode::kSumProb:
      return launch_select<AggMode::kSumProb>(cx, a);
    case AggMode::kMaxProb:
      return launch_select<AggMode::kMaxProb>(cx, a);
    case AggMode::kMeanRaw:
      return launch_select<AggMode::kMeanRaw>(cx, a);
    case AggMode::kMaxRaw:
      return launch_select<AggMode::kMaxRaw>(cx, a);
    case AggMode::kQHead:
      return launch_select<AggMode::kQHead>(cx, a);
    case AggMode::kMaxZ:
      return launch_select<AggMode::kMaxZ>(cx, a);
  }
  return fail(WEIR_ERR_INTERNAL, "page_select: agg %d", static_cast<int>(a.agg));
}

}  // namespace weir::cuda
