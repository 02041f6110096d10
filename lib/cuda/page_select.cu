// Computes: the lists of page_select. Launch: a block per KV head, or per query head for lists of their own. Numerics: as the reference, moments in
// f64 and other sums in f32, both in a fixed order; the choice is exact. Assumes: capacity and groups below 2^31. Traffic: the scores twice.
// Papers: as lib/ops/page_select_ref.cpp.
#include <algorithm>

#include "cuda/cuda_ops.h"
#include "cuda/top_keys.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 1024;
constexpr uint32_t kDigitBits = 11;  // scores of one stream share their upper eight bits, which would meet in few bins
constexpr uint32_t kSharedRows =
    8192;  // keys kept in shared memory, 32 KiB; those of later rows are made again when needed
constexpr uint32_t kStatHeads = kBlock / kWarp;  // heads whose statistics are taken at once

// What the scored rows of a head say: of a softmax high, log of the sum; of a deviation mean and 1 / standard deviation.
struct HeadStats {
  double mean, per_deviation;  // 0: all rows are alike
  float high, log_sum;
};

struct Scratch {
  TopKeysScratch<kDigitBits> top;
  HeadStats head[kStatHeads];
  double sums[kMaxBlockWarps];
  uint32_t counts[kMaxBlockWarps];
};

__device__ inline float number(float x) { return isnan(x) ? -INFINITY : x; }

// As std::max: the first of two that do not compare.
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

__device__ inline double warp_sum(double x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(kAllLanes, x, i);
  return x;
}

// Sum of what the warps [first, first + n) left, in this order.
template <class T>
__device__ inline T sum_of(const T* values, uint32_t first, uint32_t n) {
  T sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += values[first + i];
  return sum;
}

// Warps of each head when n_heads share the block.
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

// Mean and standard deviation of the scored rows of the heads [first, first + n_heads).
__device__ void deviation_stats(const Stream& s, uint32_t first, uint32_t n_heads, Scratch& shared) {
  const Team team(n_heads);
  const bool works = team.head < n_heads;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float* score = s.score(first + (works ? team.head : 0));
  double sum = 0.0;
  uint32_t count = 0;
  if (works) {
#pragma unroll 4
    for (uint32_t row = team.begin(); row < s.n; row += team.stride()) {
      const float x = score[row];
      if (!s.scored(row) || number(x) == -INFINITY) continue;
      sum += double{x};
      ++count;
    }
  }
  sum = warp_sum(sum);
  count = ::weir::cuda::warp_sum(count);
  if (lane == 0) {
    shared.sums[warp] = sum;
    shared.counts[warp] = count;
  }
  __syncthreads();
  double mean = 0.0, n_scored = 0.0, square = 0.0;
  if (works) {
    n_scored = sum_of(shared.counts, team.head * team.size, team.size);
    mean = sum_of(shared.sums, team.head * team.size, team.size) / n_scored;
#pragma unroll 4
    for (uint32_t row = team.begin(); row < s.n; row += team.stride()) {
      const float x = score[row];
      if (!s.scored(row) || number(x) == -INFINITY) continue;
      square += (double{x} - mean) * (double{x} - mean);
    }
  }
  square = warp_sum(square);
  __syncthreads();
  if (lane == 0) shared.sums[warp] = square;
  __syncthreads();
  if (works && team.place == 0 && lane == 0) {
    square = sum_of(shared.sums, team.head * team.size, team.size);
    shared.head[team.head] = {mean, square > 0.0 ? 1.0 / sqrt(square / n_scored) : 0.0, 0.0f, 0.0f};
  }
  __syncthreads();
}

// Parts of the softmax over the scored rows of the heads [first, first + n_heads).
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
    shared.head[team.head] = {0.0, 0.0, high, logf(total)};
  }
  __syncthreads();
}

__device__ inline float deviation(float x, const HeadStats& h) {
  if (number(x) == -INFINITY) return -INFINITY;
  return h.per_deviation > 0.0 ? static_cast<float>((double{x} - h.mean) * h.per_deviation) : 0.0f;
}

__device__ inline float log_probability(float x, float scale, const HeadStats& h) {
  if (h.high == -INFINITY) return -INFINITY;
  return __fmul_rn(scale, number(x)) - (h.high + h.log_sum);
}

__device__ inline float log_sum(float x, float y) {
  const float more = larger(x, y), less = y < x ? y : x;
  return less == -INFINITY ? more : more + log1pf(expf(less - more));
}

// The score of a row over the heads [first, first + n_heads), going on from `total`.
template <AggMode kAgg>
__device__ inline float join_heads(const Stream& s, uint32_t row, uint32_t first, uint32_t n_heads, float total,
                                   const Scratch& shared) {
  for (uint32_t g = 0; g < n_heads; ++g) {
    const float x = s.score(first + g)[row];
    float next = number(x);
    if constexpr (kAgg == AggMode::kMaxZ) next = deviation(x, shared.head[g]);
    if constexpr (kAgg == AggMode::kSumProb || kAgg == AggMode::kMaxProb)
      next = log_probability(x, s.a.scale, shared.head[g]);
    if (first + g == 0) {
      total = next;
    } else if constexpr (kAgg == AggMode::kSumProb) {
      total = log_sum(total, next);
    } else if constexpr (kAgg == AggMode::kMeanRaw || kAgg == AggMode::kQHead) {
      total += next;
    } else {
      total = larger(total, next);
    }
  }
  return total;
}

// group_score of the stream. Groups beyond kStatHeads heads go on from what the heads before left there.
template <AggMode kAgg>
__device__ void score_group(const Stream& s, Scratch& shared) {
  float* out = s.a.group_score + size_t{s.kv_head} * s.a.capacity;
  const uint32_t group = s.group();
  for (uint32_t first = 0; first < group; first += kStatHeads) {
    const uint32_t n_heads = min(kStatHeads, group - first);
    if constexpr (kAgg == AggMode::kMaxZ) deviation_stats(s, first, n_heads, shared);
    if constexpr (kAgg == AggMode::kSumProb || kAgg == AggMode::kMaxProb) softmax_stats(s, first, n_heads, shared);
    for (uint32_t row = threadIdx.x; row < s.n; row += blockDim.x) {
      float total = 0.0f;
      if (s.scored(row)) {
        total = join_heads<kAgg>(s, row, first, n_heads, first == 0 ? 0.0f : out[row], shared);
        if ((kAgg == AggMode::kMeanRaw || kAgg == AggMode::kQHead) && first + n_heads == group)
          total /= static_cast<float>(group);
      }
      out[row] = total;
    }
    __syncthreads();
  }
}

// The list of the stream, or of one head, by `score`.
__device__ void list_pages(const Stream& s, const float* score, uint32_t list, uint32_t* keys, Scratch& shared) {
  const auto make_key = [&](uint32_t row) {
    return s.competes(row) && !s.forced(row) ? key_of_score(score[row]) : kKeyAlways;
  };
  const uint32_t n_kept = min(kSharedRows, s.a.capacity);
  uint32_t n_forced = 0, n_open = 0;  // of the pages that compete: those listed anyway, and the others
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
  Threshold threshold = {kKeyNever, 0};  // all
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

template <AggMode kAgg>
__global__ void __launch_bounds__(kBlock, 1) page_select_kernel(const PageSelectArgs a) {
  extern __shared__ uint32_t keys[];
  __shared__ Scratch shared;
  start_next();
  wait_for_previous();
  const uint32_t list = blockIdx.x;
  if constexpr (kAgg == AggMode::kQHead) {
    const uint32_t group = a.n_heads / a.n_kv_heads;
    const Stream s(a, list / group);
    if (list % group == 0) score_group<kAgg>(s, shared);
    list_pages(s, s.score(list % group), list, keys, shared);
  } else {
    const Stream s(a, list);
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

// Scores that a selection makes lie in its arguments; nothing else is needed.
uint64_t page_select_scratch_bytes(const OpShapes&) { return 0; }

Status page_select(OpContext& cx, const PageSelectArgs& a) {
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
    default:
      return launch_select<AggMode::kMaxZ>(cx, a);
  }
}

}  // namespace weir::cuda
