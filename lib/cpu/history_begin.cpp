// The tables of attention's history after a prompt: the weights of its last rows. A query head is one unit of work. All
// logits are computed twice, tile by tile: once for the sums of a row, once for the weights.
// Paper: LFPS, arXiv:2506.15704; docs/algorithms.md, "LFPS".
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/attn_history.h"
#include "cpu/attn_history_parts.h"
#include "cpu/simd_targets.h"
#include "ops/attn_paged.h"
#include "ops/history_begin.h"
#include "ops/history_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/history_begin.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/attn_gather-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

void permute_prompt_rows(const float* from, size_t from_stride, uint32_t n_rows, const AttnPagedArgs& shape, float* to,
                         size_t d_pad) {
  permute_rows(from, from_stride, n_rows, shape, to, d_pad);
}

// Logits of n keys, one after another, for n_rows query rows: s.weight [n_rows, kBeginTokens].
void tile_logits(const KvView& kv, const HistoryScratch& s, float soft_cap, uint32_t n_rows, size_t n) {
  const RowShape shape(kv.head_dim);
  with_key_format(key_format(kv.format), [&](auto format) HWY_ATTR {
    for_heads(n_rows, [&](auto rows, uint32_t r) HWY_ATTR {
      gather_logits<decltype(rows)::value, decltype(format)::value>(kv, shape, s.q + r * s.d_pad, s.d_pad, s.rows, n,
                                                                    s.weight + r * kBeginTokens, kBeginTokens);
    });
  });
  for (uint32_t r = 0; soft_cap != 0.0f && r < n_rows; ++r) cap_logits(soft_cap, s.weight + r * kBeginTokens, n);
}

void exp_all(float* x, size_t n, float base) {
  const DF df;
  for (size_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Exp(df, hn::Sub(hn::LoadU(df, x + i), hn::Set(df, base))), df, x + i);
}

#else

void permute_prompt_rows(const float*, size_t, uint32_t, const AttnPagedArgs&, float*, size_t) {}
void tile_logits(const KvView&, const HistoryScratch&, float, uint32_t, size_t) {}
void exp_all(float*, size_t, float) {}

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(permute_prompt_rows);
HWY_EXPORT(tile_logits);
HWY_EXPORT(exp_all);

// A head's part of the tables' beginning.
struct BeginJob {
  const HistoryBeginArgs& a;
  const HistoryScratch& s;
  uint32_t head;

  // Tokens behind the sinks that a row sees.
  uint32_t n_seen(uint32_t row) const {
    const uint32_t end = a.pos + row + 1;
    return end - std::min(end, a.rules.n_sink);
  }
};

// Calls f(row, first token, tokens, logits) tile by tile for each row.
template <class F>
void for_tiles(const BeginJob& job, const F& f) {
  const HistoryBeginArgs& a = job.a;
  const uint32_t n = job.n_seen(a.n_rows - 1), kv_head = job.head / (a.n_heads / a.kv.n_kv_heads);
  for (uint32_t first = 0; first < n; first += kBeginTokens) {
    const auto tile = static_cast<uint32_t>(std::min<size_t>(kBeginTokens, n - first));
    for (uint32_t i = 0; i < tile; ++i) {
      const uint32_t pos = first + i + a.rules.n_sink;
      job.s.rows[i] = {a.kv.page_of(kv_head, pos / kPageTokens), pos % kPageTokens};
    }
    HWY_DYNAMIC_DISPATCH(tile_logits)(a.kv, job.s, a.soft_cap, a.n_rows, tile);
    for (uint32_t row = 0; row < a.n_rows; ++row) {
      if (job.n_seen(row) > first)
        f(row, first, std::min(tile, job.n_seen(row) - first), job.s.weight + row * kBeginTokens);
    }
  }
}

float spread_of(const BeginJob& job, double sum, double square) {
  const uint32_t n = job.n_seen(job.a.n_rows - 1);
  const float* q = job.a.q + (size_t{job.a.n_rows - 1} * job.a.n_heads + job.head) * job.a.kv.head_dim;
  double length = 0.0;
  for (size_t i = 0; i < job.a.kv.head_dim; ++i) length += double{q[i]} * q[i];
  const double variance = std::max(0.0, square / n - sum / n * (sum / n));
  return length > 0.0 ? static_cast<float>(variance / length) : 0.0f;
}

// Leaves of a head's tables what this prompt does not replace; returns the part that its rows have.
double keep_part(const HistoryBeginArgs& a, uint32_t head, uint32_t n, float* const* entries) {
  HeadHistory& h = a.history.heads[head];
  const double left[] = {left_of(a.rules, h, kByPosition, a.n_rows), left_of(a.rules, h, kByDistance, a.n_rows)};
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    if (left[kind] == 0.0) std::fill_n(entries[kind], n, 0.0f);
    for (uint32_t i = 0; left[kind] > 0.0 && i < n; ++i)
      entries[kind][i] = static_cast<float>(left[kind] * entries[kind][i]);
  }
  h = {};
  return part_of_rows(a.rules, left[kByPosition], a.n_rows);
}

void begin_head(const BeginJob& job) {
  const HistoryBeginArgs& a = job.a;
  HeadHistory& h = a.history.heads[job.head];
  float* entries[] = {a.history.entries_of(job.head, kByPosition), a.history.entries_of(job.head, kByDistance)};
  const uint32_t n = job.n_seen(a.n_rows - 1);
  const double of_rows = keep_part(a, job.head, n, entries);
  if (n == 0) return;
  AttnPagedArgs shape = {};
  shape.kv = a.kv;
  shape.scale = a.scale;
  HWY_DYNAMIC_DISPATCH(permute_prompt_rows)
  (a.q + job.head * size_t{a.kv.head_dim}, size_t{a.n_heads} * a.kv.head_dim, a.n_rows, shape, job.s.q, job.s.d_pad);
  float high[kBeginRows];
  double sum[kBeginRows] = {}, of_last = 0.0, of_last2 = 0.0;
  std::fill_n(high, kBeginRows, -std::numeric_limits<float>::infinity());
  for_tiles(job, [&](uint32_t row, uint32_t, uint32_t tile, float* logit) {
    float most = high[row];
    for (uint32_t i = 0; i < tile; ++i) most = std::max(most, logit[i]);  // which no NaN is
    for (uint32_t i = 0; row + 1 == a.n_rows && i < tile; ++i) {
      of_last += logit[i];
      of_last2 += double{logit[i]} * logit[i];
    }
    HWY_DYNAMIC_DISPATCH(exp_all)(logit, tile, most);
    if (sum[row] > 0.0) sum[row] *= std::exp(double{high[row]} - most);
    high[row] = most;
    for (uint32_t i = 0; i < tile; ++i) sum[row] += logit[i];
  });
  h.spread = spread_of(job, of_last, of_last2);
  for_tiles(job, [&](uint32_t row, uint32_t first, uint32_t tile, float* logit) {
    if (!std::isfinite(sum[row]) || sum[row] == 0.0) return;  // a row that is no number teaches nothing
    HWY_DYNAMIC_DISPATCH(exp_all)(logit, tile, high[row]);
    const double factor = of_rows * steady_sum(a.rules) / (a.n_rows * sum[row]);
    float* by_distance = entries[kByDistance] + (job.n_seen(row) - 1 - first);
    for (uint32_t i = 0; i < tile; ++i) {
      const auto weight = static_cast<float>(factor * logit[i]);
      entries[kByPosition][first + i] += weight;
      *(by_distance - i) += weight;
    }
  });
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) sum_table(h.table[kind], entries[kind], n);
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  make_lists(a.history, job.head, n, a.rules, listed_by_head(max_fill(group), a.candidates, group), job.s.sets.keys);
}

}  // namespace

Status history_begin(OpContext& cx, const HistoryBeginArgs& a) {
  if (!attn_has_kernels() || a.n_rows > kBeginRows || a.kv.head_dim % 8 != 0) return ref::history_begin(cx, a);
  const uint64_t tokens = uint64_t{a.history.capacity} + a.rules.n_sink;
  const uint64_t group = a.n_heads / a.kv.n_kv_heads, stride = history_scratch_stride(group, a.kv.head_dim, tokens);
  cx.pool->parallel_for(a.kv.n_kv_heads, [&](size_t kv_head, size_t) {
    take_tokens(a.kv, a.history, static_cast<uint32_t>(kv_head), static_cast<uint32_t>(group), a.rules.n_sink,
                a.pos + a.n_rows);
  });
  cx.pool->parallel_for(a.n_heads, [&](size_t head, size_t worker) {
    Arena arena(cx.scratch + worker * stride, stride);
    begin_head({a, lay_out_history(arena, group, a.kv.head_dim, tokens), static_cast<uint32_t>(head)});
  });
  const uint32_t end = a.pos + a.n_rows, n = end - std::min(end, a.rules.n_sink);
  cx.pool->parallel_for(n == 0 ? 0 : a.kv.n_kv_heads, [&](size_t kv_head, size_t worker) {
    Arena arena(cx.scratch + worker * stride, stride);
    fit_lists(a, static_cast<uint32_t>(kv_head), n, lay_out_history(arena, group, a.kv.head_dim, tokens).sets);
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
