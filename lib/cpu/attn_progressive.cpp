// Attention of one query row that takes the most important pages first and stops when it has seen enough. A KV head is
// one unit of work, because each microbatch decides whether there is a next one: a layer uses as many threads as it has
// KV heads. Pages come off a heap, so that only those that are taken are sorted.
//
// Where pages may be outside the pool, all KV heads that are not done take a microbatch together: their slots are
// assigned on the calling thread, in the order of the heads; each head then reads its pages and attends them on any
// thread, and threads that have no head to attend read the pages that may be wanted next.
//
// Numerics: f32. A page's sum of exponentials is relative to the page's own maximum, and pages are added one by one in
// their order. So after how many pages a head is done depends neither on the microbatch nor on threads.
// Papers: Zhou et al., "Progressive Sparse Attention", arXiv:2503.00392, algorithm 1; Dao et al., "FlashAttention"
// (2022), for the running maximum.
#include "cpu/attn_progressive.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "cpu/attn_paged_parts.h"
#include "cpu/simd_targets.h"
#include "cpu/top_keys.h"
#include "ops/attn_paged.h"
#include "ops/soft_cap.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_progressive.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/attn_paged_units-inl.h"
#include "hwy/highway.h"

#ifndef WEIR_CPU_ATTN_PROGRESSIVE_ONCE_
#define WEIR_CPU_ATTN_PROGRESSIVE_ONCE_
namespace weir::cpu {

// What a query head has seen.
struct HeadSeen {
  float high;        // maximum of its logits
  float sum;         // of exp(logit - high)
  float least;       // the least log of the sum of a page that counts for that; infinity before there is one
  float bound;       // maximum of the logits' bounds
  uint32_t n_quiet;  // last pages with little of the sum each
  bool done;
};

// How far a stream is.
struct StreamProgress {
  uint32_t n;        // listed pages
  uint32_t next;     // listed pages that have left `order`
  uint32_t taken;    // in the list: attended
  uint32_t dropped;  // lost
  bool done;
  // With a source: what is wanted now begins behind the pages taken, and what comes after that is here.
  uint32_t n_now, n_ahead;
  uint32_t ahead[kSplitPages];
};

// Scratch of one thread, or with a source of one stream.
struct ProgressiveScratch {
  StreamProgress* at;
  uint64_t* order;  // [max_pages] heap of ordered rows
  float* weight;    // [group, kUnitTokens] logits, then weights, of a microbatch
  float* out;       // [group, d_pad] not yet divided by the sum, permuted
  float* rest;      // [group, max_pages + 1] with bounds: exp(bound - HeadSeen::bound), summed from a page on
  HeadSeen* seen;   // [group]
};

inline ProgressiveScratch lay_out_progressive(Arena& arena, uint64_t group, uint64_t head_dim, uint64_t max_pages) {
  ProgressiveScratch s;
  s.at = arena.take<StreamProgress>(1);
  s.order = arena.take<uint64_t>(max_pages);
  s.weight = arena.take<float>(group * kUnitTokens);
  s.out = arena.take<float>(group * align_up(head_dim, kRowPad));
  s.rest = arena.take<float>(group * (max_pages + 1));
  s.seen = arena.take<HeadSeen>(group);
  return s;
}

// One stream on its way.
struct ProgressiveJob {
  const AttnProgressiveArgs& args;
  const AttnPagedArgs& attn;  // of the same pages, taken so far in the order in which they were
  const float* q;             // [n_heads, d_pad] permuted and scaled
  size_t d_pad;
  ProgressiveScratch s;
  uint32_t kv_head;

  uint32_t group() const { return heads_of_list(attn); }
  size_t table() const { return size_t{kv_head} * attn.kv.capacity; }
  uint32_t n_pages() const { return attn.kv.n_pages[kv_head]; }
  uint32_t* list() const { return args.select + table(); }
  bool forced(uint32_t row) const {
    return row + 1 == n_pages() || row < args.stop.n_sink_pages || (args.stop.flags[table() + row] & kPageKept) != 0;
  }
  float* mass(uint32_t g) const { return attn.page_mass + (size_t{kv_head} * group() + g) * attn.kv.capacity; }
};

}  // namespace weir::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

// Turns the logits of each page into exp(logit - its maximum). high, sum and lse [kSplitPages] are those of each page.
void softmax_pages(uint32_t n_pages, float* weight, float* high, float* sum, float* lse) {
  const DF df;
  for (size_t first = 0; first < n_pages; first += kLanes) {
    V of_page[kLanes];
    for (size_t p = 0; p < kLanes; ++p) {
      of_page[p] = hn::Zero(df);
      high[first + p] = kUnseen;
      if (first + p >= n_pages) continue;
      float* w = weight + (first + p) * kPageTokens;
      V top = hn::Set(df, kUnseen);
      for (size_t i = 0; i < kPageTokens; i += kLanes) top = hn::Max(top, hn::Load(df, w + i));
      const float most = hn::GetLane(hn::MaxOfLanes(df, top));
      const V base = hn::Set(df, most == kUnseen ? 0.0f : most);
      for (size_t i = 0; i < kPageTokens; i += kLanes) {
        const V x = hn::Exp(df, hn::Sub(hn::Load(df, w + i), base));
        hn::Store(x, df, w + i);
        of_page[p] = hn::Add(of_page[p], x);
      }
      high[first + p] = most;
    }
    const V sums = sums_of<kLanes>(of_page);
    hn::Store(sums, df, sum + first);
    const V logs = hn::Add(hn::Load(df, high + first), hn::Log(df, sums));
    hn::Store(hn::IfThenElse(hn::Eq(sums, hn::Zero(df)), hn::Set(df, kUnseen), logs), df, lse + first);
  }
}

// Multiplies [n], a whole number of vectors, by a factor.
HWY_INLINE void scale_by(float factor, float* x, size_t n) {
  const DF df;
  for (size_t i = 0; i < n; i += kLanes) hn::Store(hn::Mul(hn::Load(df, x + i), hn::Set(df, factor)), df, x + i);
}

// Adds page `listed` of the list to what a head has seen, and looks whether it is done.
HWY_INLINE void see_page(const ProgressiveJob& job, uint32_t g, uint32_t listed, float high, float sum, float lse,
                         float odds) {
  HeadSeen& seen = job.s.seen[g];
  if (high > seen.high) {
    seen.sum = seen.sum * std::exp(seen.high - high) + sum;
    seen.high = high;
  } else if (high != kUnseen) {
    seen.sum += sum * std::exp(high - seen.high);
  }
  if (job.args.stop.quiet_pages > 0) {
    const float of_page = high == kUnseen ? 0.0f : sum * std::exp(high - seen.high);
    seen.n_quiet = of_page <= job.args.stop.quiet_share * seen.sum ? seen.n_quiet + 1 : 0;
    seen.done = seen.done || seen.n_quiet >= job.args.stop.quiet_pages;
    return;
  }
  const uint32_t row = job.list()[listed], left = job.n_pages() - (listed + 1);
  if (job.attn.kv.len[job.table() + row] == kPageTokens && !job.forced(row)) seen.least = std::min(seen.least, lse);
  if (seen.done || job.args.stop.eps >= 1.0f) return;
  // S / (S + R) > eps, without the quotient
  if (job.args.stop.bound != nullptr) {
    const float rest = job.s.rest[g * (size_t{job.n_pages()} + 1) + listed + job.s.at->dropped + 1];
    seen.done = odds * rest * std::exp(seen.bound - seen.high) < seen.sum;
  } else if (seen.least < INFINITY) {
    seen.done = odds * static_cast<float>(left) * std::exp(seen.least - seen.high) < seen.sum;
  }
}

// Attends n pages of the list, from `first` on; returns whether all heads are done.
bool attend_pages(const ProgressiveJob& job, uint32_t first, uint32_t n) {
  const float odds = job.args.stop.eps / (1.0f - job.args.stop.eps);
  const ProgressiveScratch& s = job.s;
  unit_logits(job.attn, job.q, job.d_pad, job.kv_head, first, n, s.weight);
  bool done = true;
  for (uint32_t g = 0; g < job.group(); ++g) {
    HWY_ALIGN float high[kSplitPages], sum[kSplitPages], lse[kSplitPages];
    float* weight = s.weight + g * kUnitTokens;
    softmax_pages(n, weight, high, sum, lse);
    const float before = s.seen[g].high;
    for (uint32_t p = 0; p < n; ++p) see_page(job, g, first + p, high[p], sum[p], lse[p], odds);
    const float base = s.seen[g].high;
    if (base > before) scale_by(std::exp(before - base), s.out + g * job.d_pad, job.d_pad);
    for (uint32_t p = 0; p < n; ++p) {
      const float share = high[p] == kUnseen ? 0.0f : std::exp(high[p] - base);
      if (share != 1.0f) scale_by(share, weight + p * kPageTokens, kPageTokens);
      if (job.attn.page_mass != nullptr) job.mass(g)[job.list()[first + p]] = lse[p];
    }
    done = done && s.seen[g].done;
  }
  unit_values(job.attn, job.kv_head, first, n, s.weight, s.out, job.d_pad);
  return done;
}

// Divides by the sums. The list has become ascending.
void finish_stream(const ProgressiveJob& job, uint32_t n_taken) {
  const DF df;
  const size_t d = job.attn.kv.head_dim;
  for (uint32_t g = 0; g < job.group(); ++g) {
    const size_t head = size_t{job.kv_head} * job.group() + g;
    const HeadSeen& seen = job.s.seen[g];
    const float sink = job.attn.sinks != nullptr ? job.attn.sinks[head] : kUnseen;
    const float high = std::max(seen.high, sink), shrink = seen.high == kUnseen ? 0.0f : std::exp(seen.high - high);
    const float total = seen.sum * shrink + (job.attn.sinks != nullptr ? std::exp(sink - high) : 0.0f);
    store_head(d, job.s.out + g * job.d_pad, total > 0.0f ? shrink / total : 0.0f, job.attn.out + head * d);
    if (job.attn.page_mass == nullptr) continue;
    // In the order of rows until here. A row is not before its place in the list.
    const float lse = high + std::log(total);
    float* mass = job.mass(g);
    for (uint32_t i = 0; i < n_taken; ++i)
      mass[i] = mass[job.list()[i]] == kUnseen ? 0.0f : std::exp(mass[job.list()[i]] - lse);
  }
}

void permute(const AttnPagedArgs& a, size_t d_pad, float* out) { permute_queries(a, d_pad, out); }

#else

bool attend_pages(const ProgressiveJob&, uint32_t, uint32_t) { return true; }
void finish_stream(const ProgressiveJob&, uint32_t) {}
void permute(const AttnPagedArgs&, size_t, float*) {}

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(attend_pages);
HWY_EXPORT(finish_stream);
HWY_EXPORT(permute);

// Larger for the row that is taken before another: forced rows by row, then the others by rank and row.
uint64_t order_of(const ProgressiveJob& job, uint32_t row) {
  const uint32_t key = job.forced(row) ? UINT32_MAX : order_key(job.args.stop.rank[job.table() + row]);
  return uint64_t{key} << 32 | (UINT32_MAX - row);
}
uint32_t row_of(uint64_t order) { return UINT32_MAX - static_cast<uint32_t>(order); }

// With bounds: sorts all rows, and sums what is left after each page, from the last one on: nothing is subtracted, so
// that the sums are bounds up to rounding.
void sum_bounds(const ProgressiveJob& job, uint32_t n) {
  std::sort(job.s.order, job.s.order + n, std::greater<>());
  const AttnPagedArgs& a = job.attn;
  for (uint32_t g = 0; g < job.group(); ++g) {
    const float* bound = job.args.stop.bound + (size_t{job.kv_head} * job.group() + g) * a.kv.capacity;
    const auto logit = [&](uint32_t row) { return soft_capped(a.scale * bound[row], a.soft_cap); };
    float high = -INFINITY;
    for (uint32_t i = 0; i < n; ++i) high = std::max(high, logit(row_of(job.s.order[i])));
    job.s.seen[g].bound = high;
    float* rest = job.s.rest + g * (size_t{job.n_pages()} + 1);
    rest[n] = 0.0f;
    for (uint32_t i = n; i > 0; --i) {
      const uint32_t row = row_of(job.s.order[i - 1]);
      rest[i - 1] = rest[i] + static_cast<float>(a.kv.len[job.table() + row]) * std::exp(logit(row) - high);
    }
  }
}

void begin_stream(const ProgressiveJob& job) {
  const uint32_t n = job.args.n_select[job.kv_head];
  uint64_t* order = job.s.order;
  *job.s.at = {};
  job.s.at->n = n;
  std::fill(job.s.out, job.s.out + job.group() * job.d_pad, 0.0f);
  std::fill(job.s.seen, job.s.seen + job.group(), HeadSeen{-INFINITY, 0.0f, INFINITY, -INFINITY, 0, false});
  for (uint32_t i = 0; i < n; ++i) order[i] = order_of(job, job.list()[i]);
  job.args.stop.bound != nullptr ? sum_bounds(job, n) : std::make_heap(order, order + n);
}

// Writes the next microbatch to `rows`; returns how many there are.
uint32_t next_rows(const ProgressiveJob& job, uint32_t* rows) {
  StreamProgress& at = *job.s.at;
  uint64_t* order = job.s.order;
  const bool sorted = job.args.stop.bound != nullptr;
  const uint32_t n = std::min(job.args.stop.microbatch, at.n - at.next);
  for (uint32_t i = 0; i < n; ++i, ++at.next) {
    if (!sorted) std::pop_heap(order, order + (at.n - at.next));
    rows[i] = row_of(sorted ? order[at.next] : order[at.n - at.next - 1]);
  }
  return n;
}

void attend_next(const ProgressiveJob& job, uint32_t n) {
  StreamProgress& at = *job.s.at;
  at.done = n != 0 && HWY_DYNAMIC_DISPATCH(attend_pages)(job, at.taken, n);
  at.taken += n;
}

void end_stream(const ProgressiveJob& job) {
  const uint32_t n = job.s.at->taken;
  std::sort(job.list(), job.list() + n);
  job.args.n_select[job.kv_head] = n;
  HWY_DYNAMIC_DISPATCH(finish_stream)(job, n);
}

void attend_stream(const ProgressiveJob& job) {
  begin_stream(job);
  const StreamProgress& at = *job.s.at;
  while (!at.done && at.next < at.n) attend_next(job, next_rows(job, job.list() + at.taken));
  end_stream(job);
}

// Asks for the stream's next microbatch. False: there is none.
bool want_next(const ProgressiveJob& job) {
  StreamProgress& at = *job.s.at;
  if (at.done || at.n_ahead == 0) return false;
  uint32_t* rows = job.list() + at.taken;
  std::copy_n(at.ahead, at.n_ahead, rows);
  const uint32_t n = at.n_ahead;
  at.n_ahead = next_rows(job, at.ahead);
  at.n_now = job.args.source->want(job.kv_head, rows, n, at.ahead, at.n_ahead);
  at.dropped += n - at.n_now;
  return true;
}

void attend_wanted(const ProgressiveJob& job) {
  StreamProgress& at = *job.s.at;
  const uint32_t n = job.args.source->load(job.kv_head, job.list() + at.taken, at.n_now);
  at.dropped += at.n_now - n;
  attend_next(job, n);
  if (at.done || at.n_ahead == 0) end_stream(job);
}

// All streams, microbatch by microbatch. job(kv_head) gives one; `live` [n_kv_heads].
template <class F>
void attend_from_source(OpContext& cx, const AttnProgressiveArgs& a, uint32_t* live, const F& job) {
  const uint32_t n_kv_heads = a.attn.kv.n_kv_heads, n_threads = cx.pool->n_threads();
  cx.pool->parallel_for(n_kv_heads, [&](size_t kv_head, size_t) {
    const ProgressiveJob stream = job(static_cast<uint32_t>(kv_head));
    begin_stream(stream);
    stream.s.at->n_ahead = next_rows(stream, stream.s.at->ahead);
  });
  for (;;) {
    uint32_t n = 0;
    for (uint32_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
      if (want_next(job(kv_head))) live[n++] = kv_head;
    }
    if (n == 0) return;
    cx.pool->parallel_for(n < n_threads ? 2 * n : n, [&](size_t task, size_t) {
      task < n ? attend_wanted(job(live[task])) : a.source->read_ahead(live[task - n]);
    });
    for (uint32_t i = 0; i < n; ++i) a.source->settle(live[i]);
  }
}

uint64_t needed_bytes(uint64_t n_threads, uint64_t n_heads, uint64_t n_kv_heads, uint64_t head_dim,
                      uint64_t max_pages) {
  Arena queries, measure;
  (void)queries.take<float>(n_heads * align_up(head_dim, kRowPad));
  (void)queries.take<uint32_t>(n_kv_heads);
  (void)lay_out_progressive(measure, n_heads / n_kv_heads, head_dim, max_pages);
  return queries.used() + std::max(n_threads, n_kv_heads) * measure.used();
}

}  // namespace

uint64_t attn_progressive_scratch_bytes(const OpShapes& s) {
  return s.n_kv_heads == 0 ? 0 : needed_bytes(s.n_threads, s.n_heads, s.n_kv_heads, s.head_dim, s.max_pages);
}

Status attn_progressive(OpContext& cx, const AttnProgressiveArgs& a) {
  const uint32_t n_kv_heads = a.attn.kv.n_kv_heads, group = a.attn.n_heads / n_kv_heads, d = a.attn.kv.head_dim;
  if (d % 8 != 0 || !attn_has_kernels()) return ref::attn_progressive(cx, a);
  uint32_t most = 0;
  for (uint32_t i = 0; i < n_kv_heads; ++i) most = std::max(most, a.attn.kv.n_pages[i]);
  const uint64_t needed = needed_bytes(cx.pool->n_threads(), a.attn.n_heads, n_kv_heads, d, most);
  if (needed > cx.scratch_bytes) {
    return fail(WEIR_ERR_INTERNAL, "attn_progressive: %llu bytes of scratch, %llu needed",
                static_cast<unsigned long long>(cx.scratch_bytes), static_cast<unsigned long long>(needed));
  }
  AttnPagedArgs attn = a.attn;
  attn.select = a.select;
  attn.n_select = a.n_select;
  const size_t d_pad = align_up(d, kRowPad);
  Arena queries(cx.scratch, cx.scratch_bytes), measure;
  float* q = queries.take<float>(a.attn.n_heads * d_pad);
  uint32_t* live = queries.take<uint32_t>(n_kv_heads);
  (void)lay_out_progressive(measure, group, d, most);
  HWY_DYNAMIC_DISPATCH(permute)(attn, d_pad, q);
  const auto job = [&](uint32_t kv_head, size_t part) -> ProgressiveJob {
    Arena arena(cx.scratch + queries.used() + part * measure.used(), measure.used());
    return {a, attn, q, d_pad, lay_out_progressive(arena, group, d, most), kv_head};
  };
  if (a.source != nullptr) {
    attend_from_source(cx, a, live, [&](uint32_t kv_head) { return job(kv_head, kv_head); });
    return {};
  }
  cx.pool->parallel_for(
      n_kv_heads, [&](size_t kv_head, size_t worker) { attend_stream(job(static_cast<uint32_t>(kv_head), worker)); });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
