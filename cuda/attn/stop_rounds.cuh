// Rounds of attention that stops when it has seen enough (docs/algorithms.md, "PSA"). Pages are taken in rounds, best
// first: each warp of every block attends one page by itself and sends the page's sum for each head to all blocks.
// Every block then looks, by itself and with the same result, after how many pages each head was done. Only pages up to
// the end of the microbatch in which the last head was done enter the result; the others of the round were read in
// vain, but within the time that one page takes. So a round costs one barrier of the cluster more than attention over a
// list, and which pages are attended does not depend on how many a round has.
// Pages themselves are elsewhere (sparse_layer_stop.cuh for a cluster, attn_stop.cu for one block), so that what is
// here can be compiled for the host (tests/cuda/test_stop_rounds.cpp). Logarithms are to base 2.
// Paper: Zhou et al., "Progressive Sparse Attention", arXiv:2503.00392, algorithm 1; as
// lib/ops/attn_progressive_ref.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/common/top_k_shared.cuh"
#include "ops/attn_stop.h"

namespace weir::cuda::sparse {

inline constexpr uint32_t kStopHeads = 8;   // most query heads of a group
inline constexpr uint32_t kMaxRound = 256;  // pages
// Sums of pages, for all heads. With them StopWork takes the place of the queries that the estimates are made of; a
// group of 8 has 240 pages in a round then.
inline constexpr uint32_t kRoundSums = 240 * kStopHeads;
inline constexpr uint32_t kNotDone = 0xFFFFFFFFu;

// AttnStop, as the device needs it.
struct StopRule {
  float odds;  // eps / (1 - eps)
  float quiet_share;
  uint32_t quiet_pages;  // 0: eps decides
  uint32_t microbatch;
  uint32_t sure;   // with quiet_pages: no stream attends fewer
  uint32_t exact;  // 1: with quiet_pages, and every page is quiet
  uint32_t most;   // pages of a round
  bool by_bounds;  // what is left has at most what bounds say
};

inline StopRule stop_rule(const AttnStop& a, uint32_t group) {
  StopRule r = {};
  r.odds = a.eps < 1.0f ? a.eps / (1.0f - a.eps) : INFINITY;
  r.quiet_share = a.quiet_share;
  r.quiet_pages = a.quiet_pages;
  r.microbatch = a.microbatch;
  if (a.microbatch != 0) r.sure = (a.quiet_pages + a.microbatch - 1) / a.microbatch * a.microbatch;
  r.exact = a.quiet_pages > 0 && a.quiet_share >= 1.0f ? 1 : 0;
  r.by_bounds = a.quiet_pages == 0 && a.bound != nullptr;
  r.most = std::min(kMaxRound, kRoundSums / group);
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
  alignas(16) uint32_t key[kMaxRound];  // of a round's pages, by row
  uint32_t page[kMaxRound];             // in the order in which they are taken
  uint16_t row[kMaxRound];              // by row
  uint8_t may_be_least[kMaxRound];      // in order: whether it is full and not forced
  PagesLeft left;
  HeadSeen seen[kStopHeads];
  float lse[2][kRoundSums];  // [group, most] in order; written by all blocks, in alternating rounds
};

#ifdef __CUDACC__

// What is known of the number of pages that the stream attends; after the first look a multiple of the microbatch.
struct Progress {
  uint32_t enough;  // or kNotDone
  uint32_t sure;    // it is no less than this
};

// Without bounds no head is done before the first page that is not forced.
__device__ inline Progress progress_before(const StopRule& rule, const PagesLeft& left) {
  if (rule.by_bounds) return {kNotDone, 1};
  return {kNotDone, rule.quiet_pages > 0 ? rule.sure : left.n_forced + 1};
}

// Pages of the next round. Pages that may turn out to be too many wait in their warps until the block has looked, one
// in each warp. So all of them are in the last part of a round, whose parts have 2 * half pages, one for each warp: the
// parts before it end within `sure`. A round has at least `half` or, after the first one, twice as many: to read them
// in vain takes less time than a round. The first 64, with 8 blocks, are more than most streams need.
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
// keys become kKeyNever. pages[row] is a page's word, and is_full(word) whether the page is full.
template <uint32_t kThreads, class Pages, class IsFull>
__device__ void take_round(uint32_t* keys, const Pages& pages, uint32_t n_rows, uint32_t n,
                           SharedKeysScratch<kThreads>& top, StopWork& t, const IsFull& is_full) {
  static_assert(2 * kMaxRound <= kThreads);
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
  // Several threads count together which pages come before one, each four of them at a time. Pages with the same key
  // come by row, which is the order in which they are here.
  const uint32_t shift = n <= kThreads / 8 ? 3 : n <= kThreads / 4 ? 2 : 1, sharing = 1u << shift;
  const uint32_t own = threadIdx.x >> shift, part = threadIdx.x & (sharing - 1);
  if (threadIdx.x >= n && threadIdx.x < (n + 3) / 4 * 4) t.key[threadIdx.x] = kKeyNever;
  __syncthreads();
  top.clear();
  const uint32_t key = own < n ? t.key[own] : kKeyNever;
  uint32_t place = 0;
#pragma unroll 2
  for (uint32_t four = part; 4 * four < n; four += sharing) {
    const uint4 other = *reinterpret_cast<const uint4*>(t.key + 4 * four);
    const uint32_t below = four < own / 4 ? key - 1 : key;
    place +=
        (other.x > below ? 1 : 0) + (other.y > below ? 1 : 0) + (other.z > below ? 1 : 0) + (other.w > below ? 1 : 0);
    if (four != own / 4) continue;
    place += (own % 4 > 0 && other.x == key ? 1 : 0) + (own % 4 > 1 && other.y == key ? 1 : 0) +
             (own % 4 > 2 && other.z == key ? 1 : 0);
  }
#pragma unroll 1
  for (uint32_t bit = 1; bit < sharing; bit *= 2) place += __shfl_xor_sync(kAllLanes, place, bit);
  if (own < n && part == 0) {
    const uint32_t row = t.row[own], page = pages[row];
    t.page[place] = page;
    t.may_be_least[place] = key != kKeyAlways && is_full(page) ? 1 : 0;
    keys[row] = kKeyNever;
  }
  if (threadIdx.x == 0)
    t.left = {left.high, left.n_forced - n_forced, left.n_others - n_best, left.n_listed - n, left.n_taken + n};
  __syncthreads();
}

// 2^m * l. A sum that is not a number stays so.
struct LogSum {
  float m = -INFINITY, l = 0.0f;

  // What exponents are relative to.
  __device__ static float base(float m) { return m == -INFINITY ? 0.0f : m; }
  __device__ void add(float m2, float l2) {
    const float high = fmaxf(m, m2);
    l = l * exp2f(m - base(high)) + l2 * exp2f(m2 - base(high));
    m = high;
  }
};

// A lane's pages of a round: neighbours, as many for each lane, except that the last lanes may have fewer. The lanes
// stay together, so that shuffles need no code to join them.
struct LanePages {
  static constexpr uint32_t kUnroll = 4;  // the exponentials of so many pages are on their way at once
  uint32_t begin, n, each;                // the first one's place in the round; pages of this lane, and most of a lane
  uint32_t bits = 0;                      // pages that are not quiet, or, if eps decides, after which the head is done

  __device__ explicit LanePages(uint32_t all) : each((all + kWarp - 1) / kWarp) {
    begin = min(all, threadIdx.x % kWarp * each);
    n = min(all, begin + each) - begin;
  }

  // Adds the lane's pages to `sum` and `least`.
  __device__ void add(const StopWork& t, const float* lse, LogSum& sum, float& least) const {
#pragma unroll 1
    for (uint32_t first = 0; first < each; first += kUnroll) {
      float x[kUnroll], high = sum.m;
#pragma unroll
      for (uint32_t j = 0; j < kUnroll; ++j) {
        const bool is_page = first + j < n;
        x[j] = is_page ? lse[begin + first + j] : -INFINITY;
        high = fmaxf(high, x[j]);
        if (is_page && t.may_be_least[begin + first + j] != 0) least = fminf(least, x[j]);
      }
      float l = sum.l * exp2f(sum.m - LogSum::base(high));
#pragma unroll
      for (uint32_t j = 0; j < kUnroll; ++j) l += exp2f(x[j] - LogSum::base(high));
      sum = {high, l};
    }
  }

  // Adds them one by one, and looks after each: sets `bits`. `left`: rows that are left before the first one. `rest`:
  // see bound_rest.
  __device__ void look(const StopRule& rule, const StopWork& t, const float* lse, const float* rest, uint32_t left,
                       LogSum& sum, float& least) {
#pragma unroll 1
    for (uint32_t first = 0; first < each; first += kUnroll) {
#pragma unroll
      for (uint32_t j = first; j < first + kUnroll; ++j) {
        const bool is_page = j < n;
        const float x = is_page ? lse[begin + j] : -INFINITY, high = fmaxf(sum.m, x), base = LogSum::base(high);
        const float of_page = exp2f(x - base);
        sum = {high, sum.l * exp2f(sum.m - base) + of_page};
        bool bit;
        if (rule.quiet_pages > 0) {
          bit = x != -INFINITY && !(of_page <= rule.quiet_share * sum.l && rule.quiet_share > 0.0f);
        } else if (rest != nullptr) {
          // Finite, so that odds of 0 are met.
          const float others = fminf(exp2f(rest[is_page ? begin + j : 0] - base), 3e38f);
          bit = is_page && rule.odds * others < sum.l;
        } else {
          if (is_page && t.may_be_least[begin + j] != 0) least = fminf(least, x);
          const auto rows = static_cast<float>(left - min(left, j + 1));
          bit = is_page && least < INFINITY && rule.odds * rows * exp2f(least - base) < sum.l;
        }
        bits |= (bit ? 1u : 0u) << j;
      }
    }
  }

  // Number of the round's first pages after which the head is done, by the lane's pages, or kNotDone. `n_quiet`: pages
  // in a row up to the round that are quiet; afterwards up to the end of the lane's pages.
  __device__ uint32_t done_at(const StopRule& rule, uint32_t& n_quiet) const {
    if (rule.quiet_pages == 0) return bits != 0 ? begin + __ffs(static_cast<int>(bits)) : kNotDone;
    const uint32_t lanes = __ballot_sync(kAllLanes, bits != 0) & ((1u << threadIdx.x % kWarp) - 1);
    const uint32_t from = lanes != 0 ? kWarp - 1 - __clz(static_cast<int>(lanes)) : 0;
    const uint32_t loud = kWarp - __clz(static_cast<int>(bits)),
                   loud_before = __shfl_sync(kAllLanes, begin + loud, from);
    const uint32_t before = lanes != 0 ? begin - loud_before : n_quiet + begin;
    n_quiet = bits != 0 ? n - loud : before + n;
    // The first page that makes enough of them together with those before the lane, or, if so few are enough, with the
    // lane's own ones.
    const uint32_t at = rule.quiet_pages - min(rule.quiet_pages, before + 1);
    uint32_t done = at < n && (bits & ((2u << at) - 1)) == 0 ? at + 1 : kNotDone;
    if (rule.quiet_pages < each) {
#pragma unroll 1
      for (uint32_t j = 0, quiet = before; j < each; ++j) {
        quiet = (bits >> j & 1) != 0 ? 0 : quiet + 1;
        if (j < n && quiet >= rule.quiet_pages) done = min(done, j + 1);
      }
    }
    return done != kNotDone ? begin + done : kNotDone;
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

// Writes, for each of a round's `n` pages, the logarithm of what the pages behind it in the order may have of a head's
// sum at most. most_of_row(row) is that of a page that is not taken yet, most_of_page(i) that of the i-th of the round.
// By one warp, after take_round.
template <class MostOfRow, class MostOfPage>
__device__ void bound_rest(const uint32_t* keys, uint32_t n_rows, uint32_t n, const MostOfRow& most_of_row,
                           const MostOfPage& most_of_page, float* rest) {
  const uint32_t lane = threadIdx.x % kWarp;
  LogSum left;
  for (uint32_t row = lane; row < n_rows; row += kWarp) {
    if (keys[row] != kKeyNever) left.add(most_of_row(row), 1.0f);
  }
#pragma unroll
  for (uint32_t bit = 1; bit < kWarp; bit *= 2) {
    const float m = __shfl_xor_sync(kAllLanes, left.m, bit), l = __shfl_xor_sync(kAllLanes, left.l, bit);
    left.add(m, l);
  }
  // From the last page to the first, a lane each.
  for (uint32_t done = 0; done < n; done += kWarp) {
    const bool is_page = done + lane < n;
    const uint32_t own = is_page ? n - 1 - (done + lane) : 0;
    LogSum sum = {is_page ? most_of_page(own) : -INFINITY, is_page ? 1.0f : 0.0f};
#pragma unroll
    for (uint32_t step = 1; step < kWarp; step *= 2) {
      const float m = __shfl_up_sync(kAllLanes, sum.m, step), l = __shfl_up_sync(kAllLanes, sum.l, step);
      if (lane >= step) sum.add(m, l);
    }
    const float m = __shfl_up_sync(kAllLanes, sum.m, 1), l = __shfl_up_sync(kAllLanes, sum.l, 1);
    LogSum behind = left;
    if (lane > 0) behind.add(m, l);
    if (is_page) rest[own] = behind.m + log2f(behind.l);
    const float m_all = __shfl_sync(kAllLanes, sum.m, kWarp - 1), l_all = __shfl_sync(kAllLanes, sum.l, kWarp - 1);
    left.add(m_all, l_all);
  }
}

// Adds the `n` pages of a round, the last that were taken of `n_rows`, to what a head has seen, by one warp, and looks
// after which of them it was done. `rest`: with by_bounds, see bound_rest.
__device__ inline void look(const StopRule& rule, const StopWork& t, HeadSeen& of_head, const float* lse,
                            const float* rest, uint32_t n, uint32_t n_rows) {
  const uint32_t taken = t.left.n_taken - n;
  HeadSeen seen = of_head;
  if (seen.done_at != kNotDone) return;
  LanePages own(n);
  LogSum sum;
  float least = INFINITY;
  own.add(t, lse, sum, least);
  sum_before(seen, sum, least);
  own.look(rule, t, lse, rest, n_rows - min(n_rows, taken + own.begin), sum, least);
  const uint32_t at = own.done_at(rule, seen.n_quiet), lanes = __ballot_sync(kAllLanes, at != kNotDone);
  const uint32_t first = __shfl_sync(kAllLanes, at, lanes != 0 ? __ffs(static_cast<int>(lanes)) - 1u : 0);
  if (threadIdx.x % kWarp + 1 != kWarp) return;
  // The last lane has summed up all pages.
  if (lanes != 0) seen.done_at = taken + first;
  seen.earliest = lanes != 0 ? seen.done_at : taken + n + (rule.quiet_pages > 0 ? rule.quiet_pages - seen.n_quiet : 1);
  seen.m = sum.m, seen.l = sum.l, seen.least = least;
  of_head = seen;
}

// What all heads of the group, at most a warp's lanes, together say, to every thread.
__device__ inline Progress progress_of(const StopRule& rule, const HeadSeen* seen, uint32_t group) {
  const uint32_t lane = threadIdx.x % kWarp, head = min(lane, group - 1), each = rule.microbatch;
  const uint32_t done = max_of_lanes(seen[head].done_at), earliest = max_of_lanes(seen[head].earliest);
  const uint32_t sure = (earliest + each - 1) / each * each;
  return {done == kNotDone ? kNotDone : sure, sure};
}

#endif  // __CUDACC__

}  // namespace weir::cuda::sparse
