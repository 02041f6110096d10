// Rounds of attention that stops when it has seen enough (docs/algorithms.md, "PSA"). Pages are taken in rounds, best
// first: each warp of every block attends one page by itself and sends the page's sum for each head to all blocks.
// Every block then looks, by itself and with the same result, after how many pages each head was done. Only pages up to
// the end of the microbatch in which the last head was done enter the result; the others of the round were read in
// vain, but within the time that one page takes. So a round costs one barrier of the cluster more than attention over a
// list, and which pages are attended does not depend on how many a round has.
// Pages themselves and the cluster are elsewhere (sparse_layer_stop.cuh), so that what is here can be compiled for the
// host (tests/cuda/test_stop_rounds.cpp). Logarithms are to base 2.
// Paper: Zhou et al., "Progressive Sparse Attention", arXiv:2503.00392, algorithm 1; as
// lib/ops/attn_progressive_ref.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/common/top_k_shared.cuh"
#include "ops/ops.h"

namespace weir::cuda::sparse {

inline constexpr uint32_t kStopHeads = 8;    // most query heads of a group
inline constexpr uint32_t kMostRound = 256;  // pages
// Sums of pages, for all heads. With them StopWork takes the place of the queries that the estimates are made of; a
// group of 8 has 240 pages in a round then.
inline constexpr uint32_t kRoundSums = 240 * kStopHeads;
inline constexpr uint32_t kNotDone = 0xFFFFFFFFu;

// AttnStop, as the device needs it.
struct StopRule {
  float log_odds;        // of eps
  float log_share;       // of quiet_share
  uint32_t quiet_pages;  // 0: eps decides
  uint32_t microbatch;
  uint32_t sure;   // with quiet_pages: no stream attends fewer
  uint32_t exact;  // 1: with quiet_pages, and every page is quiet
  uint32_t most;   // pages of a round
};

inline StopRule stop_rule(const AttnStop& a, uint32_t group) {
  StopRule r = {};
  const double eps = std::min(1.0, double{a.eps});
  r.log_odds = static_cast<float>(std::log2(eps) - std::log2(1.0 - eps));
  r.log_share = static_cast<float>(std::log2(double{a.quiet_share}));
  r.quiet_pages = a.quiet_pages;
  r.microbatch = a.microbatch;
  if (a.microbatch != 0) r.sure = (a.quiet_pages + a.microbatch - 1) / a.microbatch * a.microbatch;
  r.exact = a.quiet_pages > 0 && a.quiet_share >= 1.0f ? 1 : 0;
  r.most = std::min(kMostRound, kRoundSums / group);
  return r;
}

// What a query head has seen.
struct HeadSeen {
  float m = -INFINITY, l = 0.0f;  // 2^m * l is the sum of exp(logit)
  float least = INFINITY;         // the least log of a page's sum that counts for that; infinity before there is one
  uint32_t n_quiet = 0;           // last pages with little of the sum each
  uint32_t done_at = kNotDone;    // pages after which the head was done, or kNotDone
  uint32_t earliest = 0;          // it was or will be done after no fewer pages than these
};

// Pages that are not taken yet.
struct PagesLeft {
  uint32_t high;      // the highest key of those that are not forced
  uint32_t n_forced;  // always taken, first
  uint32_t n_others;
  uint32_t n_listed;     // of both, that may be taken
  uint32_t n_taken = 0;  // before them
};

// What a block keeps while it attends, in shared memory.
struct alignas(16) StopWork {
  PagesLeft left;
  uint32_t key[kMostRound];          // of a round's pages, by row
  uint32_t page[kMostRound];         // in the order in which they are taken
  uint16_t row[kMostRound];          // by row
  uint8_t may_be_least[kMostRound];  // in order: whether it is full and not forced
  HeadSeen seen[kStopHeads];
  float lse[2][kRoundSums];  // [group, most] in order; written by all blocks, in alternating rounds
};

#ifdef __CUDACC__

// What is known of the number of pages that the stream attends; a multiple of the microbatch.
struct Progress {
  uint32_t enough;  // or kNotDone
  uint32_t sure;    // it is no less than this
};

// No head is done before the first page that is not forced.
__device__ inline Progress progress_before(const StopRule& rule, const PagesLeft& left) {
  return {kNotDone, rule.quiet_pages > 0 ? rule.sure : left.n_forced + 1};
}

// Pages of the next round. Pages that may turn out to be too many wait in their warps until the block has looked, one
// in each warp. So all of them are in the last part of a round, whose parts have 2 * half pages, one for each warp: the
// parts before it end within `sure`. A round has at least `half` or, after the first one, twice as many: to read them in
// vain takes less time than a round. The first 64, with 8 blocks, are more than most streams need.
__device__ inline uint32_t round_length(const StopRule& rule, const Progress& p, const PagesLeft& left, uint32_t round,
                                        uint32_t half) {
  uint32_t n = round == 0 ? half : 2 * half;
  if (p.enough != kNotDone) {
    n = p.enough - left.n_taken;
  } else if (rule.exact != 0) {
    n = p.sure - left.n_taken;
  } else {
    while (left.n_taken + n <= p.sure && n < rule.most) n += half;
  }
  return min(min(n, rule.most), left.n_listed);
}

// Chooses the `n` best of the pages that are left, and writes them to `t` in the order in which they are taken. Their
// keys become kKeyNever. `is_full`: of a page's word.
template <uint32_t kThreads, class IsFull>
__device__ void take_round(uint32_t* keys, const uint32_t* pages, uint32_t n_rows, uint32_t n,
                           SharedKeysScratch<kThreads>& top, StopWork& t, const IsFull& is_full) {
  static_assert(2 * kMostRound <= kThreads);
  const PagesLeft left = t.left;
  const uint32_t n_forced = min(n, left.n_forced), n_best = n - n_forced;
  Threshold threshold = {kKeyNever, 0};  // all rows
  if (n_best == 0) {
    threshold = {kKeyAlways, n_forced};
  } else if (n_best < left.n_others) {
    threshold = find_shared_threshold(keys, n_rows, n_best, left.n_forced, left.high, top);
  }
  take_shared_rows(keys, n_rows, threshold, top, [&](uint32_t row, uint32_t place) {
    t.key[place] = keys[row];
    t.row[place] = static_cast<uint16_t>(row);
  });
  // Several threads count together which pages come before one, each four of them at a time.
  constexpr uint32_t kUnroll = 4;
  const uint32_t shift = n <= kThreads / 8 ? 3 : n <= kThreads / 4 ? 2 : 1, sharing = 1u << shift;
  const uint32_t own = threadIdx.x >> shift, part = threadIdx.x & (sharing - 1);
  if (threadIdx.x >= n && threadIdx.x < (n + kWarp - 1) / kWarp * kWarp) t.key[threadIdx.x] = kKeyNever;
  __syncthreads();
  top.clear();
  const uint32_t key = own < n ? t.key[own] : kKeyNever;
  uint32_t place = 0;
#pragma unroll 1
  for (uint32_t i = part; i < n; i += kUnroll * sharing) {
#pragma unroll
    for (uint32_t j = i; j < i + kUnroll * sharing; j += sharing) place += t.key[j] > key - (j < own ? 1 : 0) ? 1 : 0;
  }
#pragma unroll 1
  for (uint32_t bit = 1; bit < sharing; bit *= 2) place += __shfl_xor_sync(kAllLanes, place, bit);
  if (own < n && part == 0) {
    const uint32_t row = t.row[own], page = pages[row];
    t.page[place] = page;
    t.may_be_least[place] = key != kKeyAlways && is_full(page) ? 1 : 0;
    keys[row] = kKeyNever;
  }
  if (threadIdx.x == 0) t.left = {left.high, left.n_forced - n_forced, left.n_others - n_best, left.n_listed - n, left.n_taken + n};
  __syncthreads();
}

// 2^m * l. A sum that is not a number stays so.
struct LogSum {
  float m = -INFINITY, l = 0.0f;

  __device__ void add(float m2, float l2) {
    const float high = fmaxf(m, m2), base = high == -INFINITY ? 0.0f : high;
    l = l * exp2f(m - base) + l2 * exp2f(m2 - base);
    m = high;
  }
};

// A lane's pages of a round: neighbours, as many for each lane, except that the last lanes may have fewer.
struct LanePages {
  uint32_t begin, end, each;  // places in the round
  uint32_t bits = 0;          // pages that are not quiet, or, if eps decides, after which the head is done

  __device__ LanePages(uint32_t n) : each((n + kWarp - 1) / kWarp) {
    begin = min(n, threadIdx.x % kWarp * each);
    end = min(n, begin + each);
  }
  // Calls f(place, whether there is such a page). The lanes stay together, so that shuffles need no code to join them.
  template <class F>
  __device__ void for_each(const F& f) const {
#pragma unroll 1
    for (uint32_t i = 0; i < each; ++i) f(begin + i, begin + i < end);
  }
  // Adds the lane's pages to `sum` and `least`, and calls f(place, whether there is such a page, its sum) after each.
  template <class F>
  __device__ void add(const StopWork& t, const float* lse, LogSum& sum, float& least, const F& f) const {
    for_each([&](uint32_t i, bool is_page) {
      const float of_page = is_page ? lse[i] : -INFINITY;
      sum.add(of_page, 1.0f);
      if (is_page && t.may_be_least[i] != 0) least = fminf(least, of_page);
      f(i, is_page, of_page);
    });
  }
  // Number of the round's first pages after which the head is done, by the lane's pages, or kNotDone. `n_quiet`: pages
  // in a row up to the round that are quiet; afterwards up to the end of the lane's pages.
  __device__ uint32_t done_at(const StopRule& rule, uint32_t& n_quiet) const {
    if (rule.quiet_pages == 0) return bits != 0 ? begin + __ffs(static_cast<int>(bits)) : kNotDone;
    const uint32_t lanes = __ballot_sync(kAllLanes, bits != 0) & ((1u << threadIdx.x % kWarp) - 1);
    const uint32_t from = lanes != 0 ? kWarp - 1 - __clz(static_cast<int>(lanes)) : 0;
    const uint32_t loud = __shfl_sync(kAllLanes, begin + kWarp - __clz(static_cast<int>(bits)), from);
    n_quiet = lanes != 0 ? begin - loud : n_quiet + begin;
    uint32_t at = kNotDone;
    for_each([&](uint32_t i, bool is_page) {
      if (is_page) n_quiet = (bits >> (i - begin) & 1) != 0 ? 0 : n_quiet + 1;
      if (is_page && n_quiet >= rule.quiet_pages) at = min(at, i + 1);
    });
    return at;
  }
};

// Turns sums over each lane's pages into sums over the pages of the lanes before it, and of what was seen before.
__device__ inline void sum_before(const HeadSeen& seen, LogSum& sum, float& least) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t step = 1; step < kWarp; step *= 2) {
    const float m = __shfl_up_sync(kAllLanes, sum.m, step), l = __shfl_up_sync(kAllLanes, sum.l, step);
    const float other = __shfl_up_sync(kAllLanes, least, step);
    sum.add(lane < step ? -INFINITY : m, lane < step ? 0.0f : l);
    least = fminf(least, other);  // without a lane that far before it is the lane's own
  }
  const float m = __shfl_up_sync(kAllLanes, sum.m, 1), l = __shfl_up_sync(kAllLanes, sum.l, 1);
  least = __shfl_up_sync(kAllLanes, least, 1);
  sum = {seen.m, seen.l};
  if (lane == 0) least = INFINITY;
  sum.add(lane == 0 ? -INFINITY : m, lane == 0 ? 0.0f : l);
  least = fminf(least, seen.least);
}

// Adds the `n` pages of a round, the last that were taken of `n_rows`, to what a head has seen, by one warp, and looks
// after which of them it was done.
__device__ inline void look(const StopRule& rule, StopWork& t, uint32_t head, const float* lse, uint32_t n,
                            uint32_t n_rows) {
  const uint32_t taken = t.left.n_taken - n;
  HeadSeen seen = t.seen[head];
  if (seen.done_at != kNotDone) return;
  LanePages own(n);
  LogSum sum;
  float least = INFINITY;
  own.add(t, lse, sum, least, [](uint32_t, bool, float) {});
  sum_before(seen, sum, least);
  own.add(t, lse, sum, least, [&](uint32_t i, bool is_page, float of_page) {
    const float all = sum.m + log2f(sum.l);
    const uint32_t rows = n_rows - min(n_rows, taken + i + 1);
    const bool bit = rule.quiet_pages > 0
                         ? of_page != -INFINITY && !(of_page - all <= rule.log_share)
                         : least < INFINITY && rule.log_odds + least + log2f(static_cast<float>(rows)) < all;
    if (is_page && bit) own.bits |= 1u << (i - own.begin);
  });
  const uint32_t at = own.done_at(rule, seen.n_quiet), lanes = __ballot_sync(kAllLanes, at != kNotDone);
  const uint32_t first = __shfl_sync(kAllLanes, at, lanes != 0 ? __ffs(static_cast<int>(lanes)) - 1u : 0);
  if (threadIdx.x % kWarp + 1 != kWarp) return;
  // The last lane has summed up all pages.
  if (lanes != 0) seen.done_at = taken + first;
  seen.earliest = lanes != 0 ? seen.done_at : taken + n + (rule.quiet_pages > 0 ? rule.quiet_pages - seen.n_quiet : 1);
  seen.m = sum.m, seen.l = sum.l, seen.least = least;
  t.seen[head] = seen;
}

// What all heads of the group together say, to every thread.
__device__ inline Progress progress_of(const StopRule& rule, const StopWork& t, uint32_t group) {
  const uint32_t lane = threadIdx.x % kWarp, head = min(lane, group - 1), each = rule.microbatch;
  const uint32_t done = max_of_lanes(t.seen[head].done_at), earliest = max_of_lanes(t.seen[head].earliest);
  const uint32_t sure = (earliest + each - 1) / each * each;
  return {done == kNotDone ? kNotDone : sure, sure};
}

#endif  // __CUDACC__

}  // namespace weir::cuda::sparse
