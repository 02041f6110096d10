// Attention that stops when it has seen enough, in sparse_layer.cu: what stop_rounds.cuh does with pages and a cluster.
#pragma once

#include "cuda/attn/sparse_layer_attend.cuh"

namespace weir::cuda::sparse {

static_assert(kStopHeads == kHeads && kMaxRows <= 1u << 16);

// The queries that the estimates are made of are not read any more when attention begins. So a layer that stops needs
// no more shared memory than one that does not, if there is room. With 18 KiB more a step took 7 us longer for each
// layer of 8,192 pages (docs/results/psa/h200-variants.jsonl).
template <uint32_t kDim>
inline constexpr bool kStopInParts = sizeof(StopWork) <= sizeof(typename Shared<kDim>::Estimates);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <uint32_t kDim>
__device__ StopWork& stop_work(const Work<kDim>& w) {
  void* at = w.list + w.own_stride;
  if constexpr (kStopInParts<kDim>) at = &w.s.estimates;
  return *static_cast<StopWork*>(at);
}

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
  const uint32_t n_others = w.n - n_forced, budget = w.k.select.budget;
  return {max_of_lanes(high), n_forced, n_others, n_forced + min(n_others, budget - min(budget, n_forced))};
}

// Multiplies the weights of a page by its share of the new maximum and adds it to what the warp has attended.
template <uint32_t kDim, KvFormat kFormat>
__device__ void keep_page(const Work<kDim>& w, float (&weight)[2][2], const Running& page,
                          WarpSums<kDim, kFormat>& sums) {
  const float m = fmaxf(sums.softmax.m, page.m), shrink = m == kUnseen ? 1.0f : exp2f(sums.softmax.m - m),
              share = page.m == kUnseen ? 0.0f : exp2f(page.m - m);
  sums.scale(shrink);
  sums.softmax = {m, sums.softmax.l * shrink + page.l * share};
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) weight[t][e] *= share;
  }
  sums.add(w, weight);
}

// Attends the `n` pages of a round, the last that were taken, as far as they are not too many. Once it is known how
// many are enough, nobody looks.
template <uint32_t kDim, KvFormat kFormat>
__device__ void attend_round(const Work<kDim>& w, uint32_t round, uint32_t n, Progress& p,
                             WarpSums<kDim, kFormat>& sums) {
  StopWork& t = stop_work(w);
  const StopRule& rule = w.k.stop;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, head = lane / 4, step = w.n_blocks * kWarps;
  const bool looks = p.enough == kNotDone;
#pragma unroll 1
  for (uint32_t first = 0; first < n; first += step) {
    const uint32_t own = first + warp * w.n_blocks + w.rank;
    const bool attends = own < n;
    float weight[2][2];
    Running page;
    if (attends) {
      begin_page(w, t.page[own], sums, weight);
      const float of_page = fold_page(weight, page, [](float) {});
      for (uint32_t to = lane % 4; looks && head < w.group && to < w.n_blocks; to += 4)
        *shared_of(&t.lse[round % 2][head * rule.most + own], to) = of_page;
    }
    if (looks && first + step >= n) {
      cluster_sync();
      if (warp < w.group) look(rule, t, t.seen[warp], t.lse[round % 2] + warp * rule.most, nullptr, n, w.n);
      __syncthreads();
      p = progress_of(rule, t.seen, w.group);
    }
    if (attends) {
      wait_for_values<kFormat>();
      if (t.left.n_taken - n + own < p.enough) keep_page(w, weight, page, sums);
    }
  }
}

// Attends the stream's pages until all heads of the group have seen enough, and leaves the results as attend() does.
// Returns the number of pages.
template <uint32_t kDim, KvFormat kFormat>
__device__ uint32_t attend_until_enough(const Work<kDim>& w) {
  StopWork& t = stop_work(w);
  const StopRule& rule = w.k.stop;
  const PagesLeft left = pages_left(w);
  if (threadIdx.x < kHeads) t.seen[threadIdx.x] = HeadSeen();
  if (threadIdx.x == 0) t.left = left;
  __syncthreads();
  Progress p = progress_before(rule, left);
  WarpSums<kDim, kFormat> sums;
#pragma unroll 1
  for (uint32_t round = 0; t.left.n_taken < p.enough && t.left.n_listed != 0; ++round) {
    const uint32_t n = round_length(rule, p, t.left, round, w.n_blocks * (kWarps / 2));
    take_round(w.keys, w.pages, w.n, n, w.s.top, t,
               [](uint32_t page) { return (page >> kLengthShift) + 1 == kPageTokens; });
    attend_round(w, round, n, p, sums);
  }
  settle(w, sums);
  return min(t.left.n_taken, p.enough);
}

#endif

}  // namespace weir::cuda::sparse
