// Attention of one query row over the tokens that mattered to the steps before. A KV head is one unit of work: its
// candidates come as a set from the lists (history_lists.h) and are read in ascending order, keys and values by
// prefetched pointers, each once for all heads of the group. All that a step does is proportional to what is listed,
// but for two passes over the bits of the set.
//
// Numerics: f32, sums over tokens in ascending order; tables in f32 with sums in f64. Results depend on the vector
// length, not on threads.
// Paper: LFPS, arXiv:2506.15704; docs/algorithms.md, "LFPS".
#include "cpu/attn_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/attn_history_parts.h"
#include "cpu/simd_targets.h"
#include "cpu/top_keys.h"
#include "ops/history_lists_ref.h"
#include "ops/history_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attn_history.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "cpu/attn_gather-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#ifndef WEIR_CPU_ATTN_HISTORY_ONCE_
#define WEIR_CPU_ATTN_HISTORY_ONCE_
namespace weir::cpu {

// One KV head in a step.
struct HistoryJob {
  const AttnHistoryArgs& a;
  const HistoryScratch& s;
  uint32_t kv_head, n_sink, n;  // tokens: n_sink sinks and n others

  uint32_t group() const { return a.attn.n_heads / a.attn.kv.n_kv_heads; }
  uint32_t head(uint32_t g) const { return kv_head * group() + g; }
  float* weight(uint32_t g) const { return s.weight + g * s.stride; }
  TokenRow row(uint32_t pos) const { return {a.attn.kv.page_of(kv_head, pos / kPageTokens), pos % kPageTokens}; }
};

}  // namespace weir::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {

#if WEIR_CPU_HAS_VECTORS

void permute_heads(const HistoryJob& job) {
  const size_t d = job.a.attn.kv.head_dim;
  permute_rows(job.a.attn.q + job.head(0) * d, d, job.group(), job.a.attn, job.s.q, job.s.d_pad);
}

// Logits of rows [n] for all heads of the group.
void row_logits(const HistoryJob& job, const TokenRow* rows, size_t n) {
  if (n == 0) return;
  const KvView& kv = job.a.attn.kv;
  const RowShape shape(kv.head_dim);
  with_key_format(key_format(kv.format), [&](auto format) HWY_ATTR {
    for_heads(job.group(), [&](auto heads, uint32_t g) HWY_ATTR {
      gather_logits<decltype(heads)::value, decltype(format)::value>(kv, shape, job.s.q + g * job.s.d_pad, job.s.d_pad,
                                                                     rows, n, job.weight(g), job.s.stride);
    });
  });
  if (job.a.attn.soft_cap == 0.0f) return;
  for (uint32_t g = 0; g < job.group(); ++g) cap_logits(job.a.attn.soft_cap, job.weight(g), n);
}

// key[i] of n logits, in the same order; NaN is the lowest. Returns the highest logit.
float order_keys(const float* logit, size_t n, uint32_t* key) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  V high = hn::Set(df, kUnseen);
  for (size_t i = 0; i < n; i += kLanes) {
    const V x = hn::LoadU(df, logit + i);
    const V number = hn::Add(hn::IfThenElse(hn::IsNaN(x), hn::Set(df, kUnseen), x), hn::Zero(df));
    high = hn::Max(high, hn::IfThenElse(hn::FirstN(df, n - i), number, high));
    const auto sign = hn::BitCast(du, hn::ShiftRight<31>(hn::BitCast(di, number)));
    const auto flip = hn::Or(sign, hn::Set(du, 0x80000000u));
    hn::StoreU(hn::Xor(hn::BitCast(du, number), flip), du, key + i);
  }
  return hn::GetLane(hn::MaxOfLanes(df, high));
}

// Keys [n], padded with 0 to whole vectors, that are at least `least`.
size_t count_keys(const uint32_t* key, size_t n, uint32_t least) {
  const hn::RebindToUnsigned<DF> du;
  const auto bound = hn::Set(du, least);
  size_t count = 0;
  for (size_t i = 0; i < n; i += kLanes) count += hn::CountTrue(du, hn::Not(hn::Lt(hn::LoadU(du, key + i), bound)));
  return count;
}

// Turns logits [n] into exp(logit - base) where the key is at least `least`, and 0 elsewhere. Writes the tokens that
// have a weight, with their weights, to `index` and `share`, and how many there are to n_chosen. Returns the sum.
float weigh(const HistoryScratch& s, float* weight, size_t n, uint32_t least, float base, uint32_t* index, float* share,
            uint32_t& n_chosen) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  V sum = hn::Zero(df);
  size_t count = 0;
  for (size_t i = 0; i < n; i += kLanes) {
    const auto below = hn::Lt(hn::LoadU(du, s.key + i), hn::Set(du, least));
    const V x = hn::Exp(df, hn::Sub(hn::LoadU(df, weight + i), hn::Set(df, base)));
    const V number = hn::IfThenZeroElse(hn::IsNaN(x), x);
    const V w = hn::IfThenZeroElse(hn::RebindMask(df, below), number);
    hn::StoreU(w, df, weight + i);
    sum = hn::Add(sum, w);
    const auto is_chosen = hn::AndNot(below, hn::FirstN(du, n - i));
    (void)hn::CompressStore(hn::LoadU(du, s.token + i), is_chosen, du, index + count);
    count += hn::CompressStore(w, hn::RebindMask(df, is_chosen), df, share + count);
  }
  n_chosen = static_cast<uint32_t>(count);
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

// Adds factor * share to the entries at `index` [n], which are all different, and lists those that rise above the
// floor. What is added to sums over squares is positive, so that f32 is enough for one step.
void add_weights(HistoryTable& t, float* entries, uint32_t* list, const uint32_t* index, const float* share, size_t n,
                 float factor) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const V floor = hn::Set(df, t.floor), times = hn::Set(df, factor);
  V sum = hn::Zero(df), sum2 = hn::Zero(df), sum4 = hn::Zero(df);
  for (size_t i = 0; i < n; i += kLanes) {
    const auto at = hn::LoadU(du, index + i);
    const auto valid = hn::FirstN(df, n - i);
    const V before = hn::GatherIndex(df, entries, hn::BitCast(di, at));
    const V of_step = hn::LoadU(df, share + i);
    // NaN teaches nothing.
    const V more = hn::IfThenElseZero(hn::And(valid, hn::Gt(of_step, hn::Zero(df))), hn::Mul(times, of_step));
    const V after = hn::Add(before, more);
    if (i + kLanes <= n) {
      hn::ScatterIndex(after, df, entries, hn::BitCast(di, at));
    } else {
      HWY_ALIGN float lane[kLanes];
      hn::Store(after, df, lane);
      for (size_t k = 0; i + k < n; ++k) entries[index[i + k]] = lane[k];
    }
    const V old2 = hn::Mul(before, before), new2 = hn::Mul(after, after);
    sum = hn::Add(sum, hn::Sub(after, before));
    sum2 = hn::Add(sum2, hn::Sub(new2, old2));
    sum4 = hn::Add(sum4, hn::Mul(hn::Sub(new2, old2), hn::Add(new2, old2)));
    const auto rises = hn::And(hn::And(hn::Le(before, floor), hn::Gt(after, floor)), valid);
    t.n_list += static_cast<uint32_t>(hn::CompressStore(at, hn::RebindMask(du, rises), du, list + t.n_list));
  }
  t.sum += double{hn::GetLane(hn::SumOfLanes(df, sum))};
  t.sum2 += double{hn::GetLane(hn::SumOfLanes(df, sum2))};
  t.sum4 += double{hn::GetLane(hn::SumOfLanes(df, sum4))};
}

// index = last - index.
void turn_index(uint32_t* index, size_t n, uint32_t last) {
  const hn::RebindToUnsigned<DF> du;
  for (size_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Sub(hn::Set(du, last), hn::LoadU(du, index + i)), du, index + i);
}

// s.out = the values of the rows in `used` [n], weighted. The first rows are on their way.
void sum_values(const HistoryJob& job, size_t n) {
  const HistoryScratch& s = job.s;
  sum_rows(job.a.attn.kv, job.group(), s.weight, s.stride, s.used, n, s.rows, s.out, s.d_pad);
}

// Writes which of n rows have a weight in any head to s.used; returns how many there are.
size_t list_used(const HistoryJob& job, size_t n) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  size_t count = 0;
  for (size_t i = 0; i < n; i += kLanes) {
    auto any = hn::Zero(du);
    for (uint32_t g = 0; g < job.group(); ++g) any = hn::Or(any, hn::BitCast(du, hn::LoadU(df, job.weight(g) + i)));
    const auto is_used = hn::And(hn::Ne(any, hn::Zero(du)), hn::FirstN(du, n - i));
    count += hn::CompressStore(hn::Iota(du, static_cast<uint32_t>(i)), is_used, du, job.s.used + count);
  }
  return count;
}

void prefetch_token(const HistoryJob& job, const TokenRow& row) { prefetch_key(job.a.attn.kv, row); }

void prefetch_values(const HistoryJob& job, size_t n) {
  for (size_t i = 0; i < HWY_MIN(n, kRowsAhead); ++i) prefetch_value(job.a.attn.kv, job.s.rows[job.s.used[i]]);
}

// What a table's entries at these places need, while other heads are busy.
void prefetch_entries(const float* by_position, const float* by_distance, const uint32_t* token, size_t n,
                      uint32_t last) {
  for (size_t i = 0; i < n; ++i) {
    hwy::Prefetch(by_position + token[i]);
    hwy::Prefetch(by_distance + (last - token[i]));
  }
}

// Writes a head's result: s.out times a factor.
void store_result(const HistoryJob& job, uint32_t g, float factor) {
  const size_t d = job.a.attn.kv.head_dim;
  store_head(d, job.s.out + g * job.s.d_pad, factor, job.a.attn.out + size_t{job.head(g)} * d);
}

#else

void permute_heads(const HistoryJob&) {}
void row_logits(const HistoryJob&, const TokenRow*, size_t) {}
float order_keys(const float*, size_t, uint32_t*) { return 0.0f; }
size_t count_keys(const uint32_t*, size_t, uint32_t) { return 0; }
float weigh(const HistoryScratch&, float*, size_t, uint32_t, float, uint32_t*, float*, uint32_t&) { return 0.0f; }
void add_weights(HistoryTable&, float*, uint32_t*, const uint32_t*, const float*, size_t, float) {}
void turn_index(uint32_t*, size_t, uint32_t) {}
void sum_values(const HistoryJob&, size_t) {}
size_t list_used(const HistoryJob&, size_t) { return 0; }
void prefetch_values(const HistoryJob&, size_t) {}
void prefetch_token(const HistoryJob&, const TokenRow&) {}
void prefetch_entries(const float*, const float*, const uint32_t*, size_t, uint32_t) {}
void store_result(const HistoryJob&, uint32_t, float) {}

#endif

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

HWY_EXPORT(permute_heads);
HWY_EXPORT(row_logits);
HWY_EXPORT(order_keys);
HWY_EXPORT(count_keys);
HWY_EXPORT(weigh);
HWY_EXPORT(add_weights);
HWY_EXPORT(turn_index);
HWY_EXPORT(sum_values);
HWY_EXPORT(list_used);
HWY_EXPORT(prefetch_values);
HWY_EXPORT(prefetch_token);
HWY_EXPORT(prefetch_entries);
HWY_EXPORT(store_result);

constexpr double kNothing = -std::numeric_limits<double>::infinity();

double log_sum_exp(const float* logit, uint32_t n, double more) {
  double high = more, sum = 0.0;
  for (uint32_t i = 0; i < n; ++i) high = std::max(high, double{logit[i]});
  if (high == kNothing) return high;
  for (uint32_t i = 0; i < n; ++i) sum += std::exp(logit[i] - high);
  return high + std::log(sum + std::exp(more - high));
}

// Logits that are no numbers count for nothing.
void drop_nan(const HistoryJob& job, uint32_t n) {
  for (uint32_t g = 0; g < job.group(); ++g) {
    float* logit = job.weight(g);
    for (uint32_t i = 0; i < n; ++i) logit[i] = std::isnan(logit[i]) ? static_cast<float>(kNothing) : logit[i];
  }
}

double extra_sink(const HistoryJob& job, uint32_t g) {
  return job.a.attn.sinks != nullptr ? double{job.a.attn.sinks[job.head(g)]} : kNothing;
}

// The share of the sinks, estimated from the logits of the rows: sinks, then the recent tokens.
double estimate(const HistoryJob& job, uint32_t g, uint32_t n_recent) {
  const size_t d = job.a.attn.kv.head_dim;
  const float* q = job.a.attn.q + size_t{job.head(g)} * d;
  const double* keys = job.a.history.sums + size_t{job.kv_head} * 2 * d;
  constexpr size_t kParts = 8;  // sums that do not wait for each other; head_dim is a multiple of 8
  double dots[kParts] = {}, squares[kParts] = {}, dot = 0.0, square = 0.0;
  for (size_t i = 0; i < d; i += kParts) {
    for (size_t k = 0; k < kParts; ++k) {
      dots[k] += q[i + k] * keys[i + k];
      squares[k] += double{q[i + k]} * q[i + k];
    }
  }
  for (size_t k = 0; k < kParts; ++k) dot += dots[k], square += squares[k];
  const double mean = dot / job.n * job.a.attn.scale, cap = job.a.attn.soft_cap;
  const double others = std::log(double(job.n)) + (cap == 0.0 ? mean : cap * std::tanh(mean / cap)) +
                        0.5 * double{job.a.history.heads[job.head(g)].spread} * square;
  const float* logit = job.weight(g);
  return sink_share(log_sum_exp(logit, job.n_sink, extra_sink(job, g)), others,
                    log_sum_exp(logit + job.n_sink, n_recent, kNothing));
}

// Which heads look at more than the sinks; share [group] is that of the sinks of the others. Returns whether any does.
bool decide(const HistoryJob& job, bool* looks, double* share) {
  std::fill_n(looks, job.group(), true);
  if (job.n <= job.a.size.top) return true;
  const uint32_t n_recent = std::min(job.a.rules.n_recent, job.n);
  for (uint32_t i = 0; i < n_recent; ++i) job.s.rows[job.n_sink + i] = job.row(job.a.attn.pos - i);
  HWY_DYNAMIC_DISPATCH(row_logits)(job, job.s.rows, job.n_sink + n_recent);
  drop_nan(job, job.n_sink + n_recent);
  bool any = false;
  for (uint32_t g = 0; g < job.group(); ++g) {
    share[g] = estimate(job, g, n_recent);
    looks[g] = !(share[g] > job.a.rules.eta);
    any = any || looks[g];
  }
  return any;
}

bool any_kept(const HistoryJob& job) {
  const uint32_t* flags = job.a.flags + size_t{job.kv_head} * job.a.attn.kv.capacity;
  uint32_t all = 0;
  for (uint32_t row = 0; row < job.a.attn.kv.n_pages[job.kv_head]; ++row) all |= flags[row];
  return (all & kPageKept) != 0;
}
bool is_kept(const HistoryJob& job, uint32_t token) {
  const uint32_t row = (token + job.n_sink) / kPageTokens;
  return (job.a.flags[size_t{job.kv_head} * job.a.attn.kv.capacity + row] & kPageKept) != 0;
}

// Gives the candidates [m] that are not among the best a key of 0. With pinned pages, theirs count for nothing and get
// the highest key. `high`: the highest logit. Returns the least key that stays.
uint32_t choose(const HistoryJob& job, uint32_t g, uint32_t m, bool kept, float& high) {
  uint32_t* key = job.s.key;
  high = HWY_DYNAMIC_DISPATCH(order_keys)(job.weight(g) + job.n_sink, m, key);
  for (uint32_t i = m; i < align_up(m, kVectorPad); ++i) key[i] = 0;
  uint32_t n = m;
  for (uint32_t i = 0; kept && i < m; ++i) {
    if (!is_kept(job, job.s.token[i])) continue;
    key[i] = 0;
    --n;
  }
  uint32_t n_over = 0, least = 1;
  if (n > job.a.size.top) {
    const auto count = HWY_DYNAMIC_DISPATCH(count_keys);
    const auto reach = [&](uint32_t key_at) { return static_cast<uint32_t>(count(key, m, key_at)); };
    least = best_threshold(job.a.size.top, reach);
    n_over = reach(least) - job.a.size.top;
  }
  for (uint32_t i = m; n_over > 0 && i > 0; --i) {
    if (key[i - 1] != least) continue;
    key[i - 1] = 0;
    --n_over;
  }
  for (uint32_t i = 0; kept && i < m; ++i) {
    if (is_kept(job, job.s.token[i])) key[i] = UINT32_MAX;
  }
  return std::max(least, 1u);
}

// What a head that looks attends.
struct Attended {
  uint32_t n;       // tokens behind the sinks
  float of_tokens;  // sum of their weights
  float total;      // and of those of the sinks
};

// Half of a head's attention goes to its tables, which decay before.
void learn(const HistoryJob& job, uint32_t g, const Attended& seen) {
  const HistoryView& view = job.a.history;
  const uint32_t head = job.head(g);
  HeadHistory& h = view.heads[head];
  h.scale *= job.a.rules.gamma;
  const bool teaches = seen.of_tokens > kMinLearned;
  const auto factor = static_cast<float>(teaches ? 0.5 / (double{seen.of_tokens} * h.scale) : 0.0);
  uint32_t* index = job.s.index + g * job.s.stride;
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    if (kind == kByDistance) HWY_DYNAMIC_DISPATCH(turn_index)(index, seen.n, job.n - 1);
    std::fill_n(index + seen.n, kVectorPad, 0u);  // whole vectors are gathered
    HistoryTable& t = h.table[kind];
    // Pinned tokens can be more than a list has room for.
    const uint64_t most = std::min<uint64_t>(uint64_t{t.n_list} + seen.n, job.n);
    const bool fits = most + kVectorPad <= view.list_capacity;
    if (!fits) t.n_list = 0;
    HWY_DYNAMIC_DISPATCH(add_weights)
    (t, view.entries_of(head, kind), fits ? view.list_of(head, kind) : job.s.sets.keys, index,
     job.s.share + g * job.s.stride, seen.n, factor);
    if (!fits) t.n_list = kUnlisted;
  }
  if (h.scale < kMinHistoryScale) rescale_lists(view, head, job.n);
  trim_lists(view, head, job.n, job.a.rules, listed_by_head(view.fill[job.kv_head], job.a.size.candidates, job.group()),
             job.s.sets.keys);
}

// Turns the logits of a head that looks into weights.
Attended attend_head(const HistoryJob& job, uint32_t g, uint32_t m, bool kept) {
  float* weight = job.weight(g);
  uint32_t* index = job.s.index + g * job.s.stride;
  const uint32_t head = job.head(g);
  float high = 0.0f;
  const uint32_t least = choose(job, g, m, kept, high);
  const double extra = extra_sink(job, g);
  high = std::max(high, static_cast<float>(extra));
  for (uint32_t i = 0; i < job.n_sink; ++i) high = std::max(high, weight[i]);
  for (uint32_t i = m; i < align_up(m, kVectorPad); ++i) weight[job.n_sink + i] = high;
  Attended seen = {};
  seen.of_tokens = HWY_DYNAMIC_DISPATCH(weigh)(job.s, weight + job.n_sink, m, least, high, index,
                                               job.s.share + g * job.s.stride, seen.n);
  seen.total = seen.of_tokens + static_cast<float>(std::exp(extra - high));
  for (uint32_t i = 0; i < job.n_sink; ++i) seen.total += weight[i] = std::exp(weight[i] - high);
  if (job.a.chosen != nullptr) {
    std::copy_n(index, seen.n, job.a.chosen + size_t{head} * job.a.history.capacity);
    job.a.n_chosen[head] = seen.n;
  }
  HWY_DYNAMIC_DISPATCH(prefetch_entries)
  (job.a.history.entries_of(head, kByPosition), job.a.history.entries_of(head, kByDistance), index, seen.n, job.n - 1);
  return seen;
}

// The same for a head that attends its sinks and the mean of all else.
Attended attend_sinks(const HistoryJob& job, uint32_t g, uint32_t m) {
  float* weight = job.weight(g);
  const double base = log_sum_exp(weight, job.n_sink, extra_sink(job, g));
  for (uint32_t i = 0; i < job.n_sink; ++i) weight[i] = static_cast<float>(std::exp(weight[i] - base));
  std::fill_n(weight + job.n_sink, m, 0.0f);
  if (job.a.n_chosen != nullptr) job.a.n_chosen[job.head(g)] = 0;
  return {0, 0.0f, 1.0f};
}

void blend(const HistoryJob& job, uint32_t g, double share) {
  const size_t d = job.a.attn.kv.head_dim;
  const double* values = job.a.history.sums + (size_t{job.kv_head} * 2 + 1) * d;
  float* out = job.a.attn.out + job.head(g) * d;
  for (size_t i = 0; i < d; ++i) out[i] = static_cast<float>(share * out[i] + (1.0 - share) * values[i] / job.n);
}

// Candidates as if all heads looked, before there is a query.
void look_ahead(const HistoryJob& job) {
  const AttnHistoryArgs& a = job.a;
  const uint32_t words = job.n / kBits + 1, group = job.group();
  uint32_t& n_ahead = a.ahead.n[job.kv_head];
  n_ahead = 0;
  open_entries(a.history, job.kv_head, group, a.rules.n_sink, a.attn.pos + 1);
  bool looks[kMaxGroup];
  std::fill_n(looks, group, true);
  const float fill = mark_candidates(a, job.kv_head, job.n, looks, job.s.sets);
  if (job.n == 0 || count_members(job.s.sets.group, words) > a.ahead.capacity) return;
  uint32_t* const tokens = a.ahead.tokens_of(job.kv_head);
  n_ahead = list_members(job.s.sets.group, job.n, tokens);
  a.ahead.fill[job.kv_head] = fill;
  // The newest token is the last member, and has no key yet.
  const auto prefetch = HWY_DYNAMIC_DISPATCH(prefetch_token);
  for (uint32_t i = 0; i + 1 < n_ahead; ++i) prefetch(job, job.row(job.n_sink + tokens[i]));
}

// Which tokens are candidates: s.token, or what was found ahead. Returns how many there are.
uint32_t find_candidates(const HistoryJob& job, const bool* looks, HistoryScratch& s) {
  const AttnHistoryArgs& a = job.a;
  const bool all_look = std::all_of(looks, looks + job.group(), [](bool look) { return look; });
  const uint32_t n_ahead = a.ahead.tokens != nullptr && all_look ? a.ahead.n[job.kv_head] : 0;
  if (n_ahead != 0) {
    s.token = a.ahead.tokens_of(job.kv_head);
    a.history.fill[job.kv_head] = a.ahead.fill[job.kv_head];
    return n_ahead;
  }
  a.history.fill[job.kv_head] = mark_candidates(a, job.kv_head, job.n, looks, s.sets);
  return list_members(s.sets.group, job.n, s.token);
}

void attend_stream(const HistoryJob& with_scratch) {
  const AttnHistoryArgs& a = with_scratch.a;
  HistoryScratch s = with_scratch.s;
  const HistoryJob job = {a, s, with_scratch.kv_head, with_scratch.n_sink, with_scratch.n};
  take_tokens(a.attn.kv, a.history, job.kv_head, a.attn.n_heads / a.attn.kv.n_kv_heads, a.rules.n_sink, a.attn.pos + 1);
  HWY_DYNAMIC_DISPATCH(permute_heads)(job);
  for (uint32_t pos = 0; pos < job.n_sink; ++pos) s.rows[pos] = job.row(pos);
  bool looks[kMaxGroup];
  double share[kMaxGroup];
  const bool any = decide(job, looks, share);
  uint32_t m = 0;
  if (any) {
    m = find_candidates(job, looks, s);
    for (uint32_t i = 0; i < m; ++i) s.rows[job.n_sink + i] = job.row(job.n_sink + s.token[i]);
    HWY_DYNAMIC_DISPATCH(row_logits)(job, s.rows, job.n_sink + m);
    drop_nan(job, job.n_sink);  // of the others, order_keys
  }
  if (a.ahead.tokens != nullptr) a.ahead.n[job.kv_head] = 0;
  a.n_read[job.kv_head] = job.n_sink + (any ? m : std::min(a.rules.n_recent, job.n));
  const bool kept = any && any_kept(job);
  Attended seen[kMaxGroup];
  for (uint32_t g = 0; g < job.group(); ++g)
    seen[g] = looks[g] ? attend_head(job, g, m, kept) : attend_sinks(job, g, m);
  const size_t n_used = HWY_DYNAMIC_DISPATCH(list_used)(job, job.n_sink + m);
  HWY_DYNAMIC_DISPATCH(prefetch_values)(job, n_used);
  for (uint32_t g = 0; g < job.group() && job.n > 0; ++g) {
    if (looks[g]) learn(job, g, seen[g]);
  }
  HWY_DYNAMIC_DISPATCH(sum_values)(job, n_used);
  for (uint32_t g = 0; g < job.group(); ++g) {
    HWY_DYNAMIC_DISPATCH(store_result)(job, g, 1.0f / seen[g].total);
    if (!looks[g]) blend(job, g, share[g]);
  }
}

}  // namespace

uint64_t attn_history_scratch_bytes(const OpShapes& shapes) {
  if (shapes.history_tokens == 0) return 0;
  const uint64_t group = shapes.n_heads / shapes.n_kv_heads, tokens = shapes.history_tokens;
  return std::max(shapes.n_threads * history_scratch_stride(group, shapes.head_dim, tokens),
                  ref::history_scratch_bytes(tokens, group, shapes.head_dim));
}

Status attn_history(OpContext& cx, const AttnHistoryArgs& a) {
  const uint32_t group = a.attn.n_heads / a.attn.kv.n_kv_heads;
  if (!attn_has_kernels() || group > kMaxGroup || a.attn.kv.head_dim % 8 != 0) return ref::attn_history(cx, a);
  const uint64_t tokens = uint64_t{a.history.capacity} + a.rules.n_sink;
  const uint64_t stride = history_scratch_stride(group, a.attn.kv.head_dim, tokens);
  const uint32_t n_sink = std::min(a.rules.n_sink, a.attn.pos + 1);
  cx.pool->parallel_for(a.attn.kv.n_kv_heads, [&](size_t kv_head, size_t worker) {
    Arena arena(cx.scratch + worker * stride, stride);
    const HistoryScratch s = lay_out_history(arena, group, a.attn.kv.head_dim, tokens);
    const HistoryJob job = {a, s, static_cast<uint32_t>(kv_head), n_sink, a.attn.pos + 1 - n_sink};
    a.only_looks_ahead ? look_ahead(job) : attend_stream(job);
  });
  return {};
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
