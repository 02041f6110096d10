// Attention that stops when it has seen enough, in sparse_layer.cu (docs/algorithms.md, "PSA"). Pages are taken in
// rounds, best first: each of the first kStopWarps warps of every block attends one page by itself and sends the page's
// sum for each head to all blocks. Every block then looks, by itself and with the same result, after how many pages
// each head was done. Only pages up to the end of the microbatch in which the last head was done enter the result; the
// others of the round were read in vain, but within the time that one page takes.
// So a round costs one barrier of the cluster more than attention over a list, and which pages are attended does not
// depend on how many a round has.
// Paper: Zhou et al., "Progressive Sparse Attention", arXiv:2503.00392, algorithm 1; as
// lib/ops/attn_progressive_ref.cpp.
#pragma once

#include "cuda/attn/sparse_layer_attend.cuh"

namespace weir::cuda::sparse {

// With a cluster of 8 blocks a round has 64 pages: more than most streams need, and few enough that pages read in vain
// take little of the memory's time.
inline constexpr uint32_t kStopWarps = 8, kMostRound = kMostBlocks * kStopWarps;
static_assert(kStopWarps <= kWarps && kMostRound <= kThreads);

inline constexpr uint32_t kNotDone = 0xFFFFFFFFu;

// What a query head has seen; logarithms are to base 2.
struct HeadSeen {
  float m, l;        // 2^m * l is the sum of exp(logit)
  float least;       // the least log of a page's sum that counts for that; infinity before there is one
  uint32_t n_quiet;  // last pages with little of the sum each
  uint32_t done_at;  // pages after which the head was done, or kNotDone
};

// What a block keeps while it attends.
struct StopWork {
  uint32_t key[kMostRound], row[kMostRound];  // of a round's pages, by row
  uint32_t page[kMostRound];                  // in the order in which they are taken, see Work::pages
  uint32_t may_be_least[kMostRound];          // whether it is full and not forced
  float lse[2][kHeads][kMostRound];           // written by all blocks, in alternating rounds
  HeadSeen seen[kHeads];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Pages that are not taken yet.
struct PagesLeft {
  uint32_t high;      // the highest key of those that are not forced
  uint32_t n_forced;  // always taken, first
  uint32_t n_others;
};

// All pages, by the keys of all rows.
template <uint32_t kDim>
__device__ PagesLeft pages_left(const Work<kDim>& w) {
  uint32_t high = 0, n_forced = 0;
#pragma unroll 2
  for (uint32_t i = threadIdx.x % kWarp; i < w.n_blocks * kWarps; i += kWarp) {
    const uint2 range = w.s.range[i];
    high = max(high, range.x);
    n_forced += range.y;
  }
  n_forced = sum_of_lanes(n_forced);
  return {max_of_lanes(high), n_forced, w.n - n_forced};
}

// Chooses the `n` best of the pages that are left, and writes them to stop->page in the order in which they are taken.
template <uint32_t kDim>
__device__ void take_round(const Work<kDim>& w, PagesLeft& left, uint32_t n) {
  StopWork& t = *w.stop;
  const uint32_t n_forced = min(n, left.n_forced), n_best = n - n_forced;
  Threshold threshold = {kKeyNever, 0};  // all rows
  if (n_best == 0) {
    threshold = {kKeyAlways, n_forced};
  } else if (n_best < left.n_others) {
    threshold = find_shared_threshold(w.keys, w.n, n_best, left.n_forced, left.high, w.s.top);
  }
  take_shared_rows(w.keys, w.n, threshold, w.s.top, [&](uint32_t row, uint32_t place) {
    t.key[place] = w.keys[row];
    t.row[place] = row;
  });
  __syncthreads();
  w.s.top.clear();
  if (threadIdx.x < n) {
    const uint32_t key = t.key[threadIdx.x], row = t.row[threadIdx.x];
    uint32_t place = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < n; ++i) place += t.key[i] > key || (t.key[i] == key && i < threadIdx.x) ? 1u : 0u;
    t.page[place] = w.pages[row];
    t.may_be_least[place] = key != kKeyAlways && (w.pages[row] >> kLengthShift) + 1 == kPageTokens ? 1u : 0u;
    w.keys[row] = kKeyNever;
  }
  left.n_forced -= n_forced;
  left.n_others -= n_best;
  __syncthreads();
}

// Adds (m2, l2) to (m, l): 2^m * l + 2^m2 * l2. A sum that is not a number stays so.
__device__ inline void add_sum(float& m, float& l, float m2, float l2) {
  if (m == kUnseen && m2 == kUnseen) return;
  const float high = fmaxf(m, m2);
  l = l * exp2f(m - high) + l2 * exp2f(m2 - high);
  m = high;
}

// Adds a round's pages to what a head has seen, by one warp, and looks after which of them it was done. `taken`: pages
// before the round.
template <uint32_t kDim>
__device__ void look(const Work<kDim>& w, uint32_t head, const float* lse, uint32_t taken, uint32_t n) {
  const AttnStop& stop = w.k.stop;
  const uint32_t lane = threadIdx.x % kWarp;
  const float log_odds = log2f(stop.eps) - log2f(1.0f - stop.eps), log_share = log2f(stop.quiet_share);
  HeadSeen seen = w.stop->seen[head];
#pragma unroll 1
  for (uint32_t first = 0; first < n && seen.done_at == kNotDone; first += kWarp) {
    const uint32_t i = first + lane;
    const float of_page = i < n ? lse[i] : kUnseen;
    float m = of_page, l = of_page == kUnseen ? 0.0f : 1.0f;
    float least = i < n && w.stop->may_be_least[i] != 0 ? of_page : INFINITY;
#pragma unroll
    for (uint32_t step = 1; step < kWarp; step *= 2) {
      float m2 = __shfl_up_sync(kAllLanes, m, step), l2 = __shfl_up_sync(kAllLanes, l, step);
      const float other = __shfl_up_sync(kAllLanes, least, step);
      if (lane < step) continue;
      add_sum(m, l, m2, l2);
      least = fminf(least, other);
    }
    add_sum(m, l, seen.m, seen.l);
    least = fminf(least, seen.least);
    const float sum = m + log2f(l);
    bool done;
    uint32_t n_quiet = 0;
    if (stop.quiet_pages > 0) {
      const bool quiet = of_page == kUnseen || of_page - sum <= log_share;
      const uint32_t loud = __ballot_sync(kAllLanes, !quiet) & (2u << lane) - 1;  // pages up to this one
      n_quiet = loud != 0 ? lane - (kWarp - 1 - __clz(static_cast<int>(loud))) : seen.n_quiet + lane + 1;
      done = n_quiet >= stop.quiet_pages;
    } else {
      const uint32_t rows_left = w.n - min(w.n, taken + i + 1);
      done = least < INFINITY && log_odds + least + log2f(static_cast<float>(rows_left)) < sum;
    }
    const uint32_t ends = __ballot_sync(kAllLanes, done && i < n);
    if (ends != 0) seen.done_at = taken + first + __ffs(static_cast<int>(ends));
    const uint32_t last = min(n - first, kWarp) - 1;
    seen.m = __shfl_sync(kAllLanes, m, last), seen.l = __shfl_sync(kAllLanes, l, last);
    seen.least = __shfl_sync(kAllLanes, least, last), seen.n_quiet = __shfl_sync(kAllLanes, n_quiet, last);
  }
  if (lane == 0) w.stop->seen[head] = seen;
}

// Number of pages, counted from the first, that the stream attends; kNotDone if that is not known yet.
template <uint32_t kDim>
__device__ uint32_t pages_enough(const Work<kDim>& w) {
  uint32_t most = 0;
  for (uint32_t head = 0; head < w.group; ++head) most = max(most, w.stop->seen[head].done_at);
  const uint32_t each = w.k.stop.microbatch;
  return most == kNotDone ? kNotDone : (most + each - 1) / each * each;
}

// Multiplies the weights of a page by its share of the new maximum and adds it to what the warp has attended.
template <uint32_t kDim>
__device__ void keep_page(const Work<kDim>& w, float (&weight)[2][2], const Running& page, WarpSums<kDim>& sums) {
  const float m = fmaxf(sums.softmax.m, page.m), shrink = m == kUnseen ? 1.0f : exp2f(sums.softmax.m - m),
              share = page.m == kUnseen ? 0.0f : exp2f(page.m - m);
  sums.scale(shrink);
  sums.softmax = {m, sums.softmax.l * shrink + page.l * share};
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) weight[t][e] *= share;
  }
  add_shared_values<kDim>(w.s.values[threadIdx.x / kWarp], weight, sums.acc);
}

// Attends the stream's pages until all heads of the group have seen enough, and leaves the results as attend() does.
// Returns the number of pages.
template <uint32_t kDim>
__device__ uint32_t attend_until_enough(const Work<kDim>& w) {
  StopWork& t = *w.stop;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, head = lane / 4;
  PagesLeft left = pages_left(w);
  const uint32_t budget = w.k.select.budget,
                 n_listed = left.n_forced + min(left.n_others, budget - min(budget, left.n_forced));
  const uint32_t own = warp * w.n_blocks + w.rank, most = w.n_blocks * kStopWarps;  // own: page of a round
  if (threadIdx.x < kHeads) t.seen[threadIdx.x] = {kUnseen, 0.0f, INFINITY, 0, kNotDone};
  WarpSums<kDim> sums;
  uint32_t taken = 0, enough = kNotDone;
#pragma unroll 1
  for (uint32_t round = 0; taken < min(n_listed, enough); ++round) {
    const uint32_t n = min(most, n_listed - taken);
    take_round(w, left, n);
    float(*lse)[kMostRound] = t.lse[round % 2];
    float weight[2][2];
    Running page;
    const bool attends = warp < kStopWarps && own < n;
    if (attends) {
      begin_page(w, t.page[own], weight);
      const float of_page = fold_page(weight, page, [](float) {});
      for (uint32_t to = lane % 4; to < w.n_blocks; to += 4) *shared_of(&lse[head][own], to) = of_page;
    }
    cluster_sync();
    if (enough == kNotDone) {
      if (warp < w.group) look(w, warp, lse[warp], taken, n);
      __syncthreads();
      enough = pages_enough(w);
    }
    if (attends) {
      wait_copies<0>();
      __syncwarp();
      if (taken + own < enough) keep_page(w, weight, page, sums);
    }
    taken = min(taken + n, enough);
  }
  settle(w, sums);
  return taken;
}

#endif

}  // namespace weir::cuda::sparse
