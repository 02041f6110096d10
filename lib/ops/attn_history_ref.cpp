// Attention over the tokens that mattered to the steps before, defined: candidates by a scan of whole tables, attention
// over them in f64.
// Paper: LFPS, "learn from the past for fast sparse attention", arXiv:2506.15704; docs/algorithms.md, "LFPS", says what
// of it had to be reconstructed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attn_history.h"
#include "ops/history_lists_ref.h"
#include "ops/history_sums.h"
#include "quant/half.h"

namespace weir::ref {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// log of the sum of exp over n logits(i), and of exp(more).
template <class F>
double log_sum_exp(uint32_t n, double more, const F& logit) {
  double high = more, sum = 0.0;
  for (uint32_t i = 0; i < n; ++i) high = std::max(high, logit(i));
  if (high == kNothing) return high;
  for (uint32_t i = 0; i < n; ++i) sum += std::exp(logit(i) - high);
  return high + std::log(sum + std::exp(more - high));
}

// One KV head in a step.
struct Stream {
  const AttnHistoryArgs& a;
  const HistoryScratch& m;
  uint32_t kv_head;

  const KvView& kv() const { return a.attn.kv; }
  uint32_t group() const { return a.attn.n_heads / kv().n_kv_heads; }
  uint32_t n_sink() const { return std::min(a.rules.n_sink, a.attn.pos + 1); }
  uint32_t n() const { return a.attn.pos + 1 - n_sink(); }
  double key(uint32_t pos, size_t i) const {
    return load_element(kv().stored_keys_of(kv_head, pos / kPageTokens), pos % kPageTokens, i);
  }
  double value(uint32_t pos, size_t i) const {
    return load_element(kv().stored_values_of(kv_head, pos / kPageTokens), pos % kPageTokens, i);
  }
  bool kept(uint32_t token) const {
    return (a.flags[size_t{kv_head} * kv().capacity + (token + n_sink()) / kPageTokens] & kPageKept) != 0;
  }
  double logit(uint32_t head, uint32_t pos) const {
    double dot = 0.0;
    for (size_t i = 0; i < kv().head_dim; ++i) dot += double{a.attn.q[size_t{head} * kv().head_dim + i]} * key(pos, i);
    return std::isnan(dot) ? kNothing : cap(dot * a.attn.scale);
  }
  double cap(double x) const { return a.attn.soft_cap == 0.0f ? x : a.attn.soft_cap * std::tanh(x / a.attn.soft_cap); }
};

// The logit of the model's own sink of a head, if it has one.
double extra_sink(const Stream& s, uint32_t head) {
  return s.a.attn.sinks != nullptr ? double{s.a.attn.sinks[head]} : kNothing;
}

// The share of the sinks, estimated.
double estimate(const Stream& s, uint32_t head) {
  const KvView& kv = s.kv();
  const double* keys = s.a.history.sums + size_t{s.kv_head} * 2 * kv.head_dim;
  double dot = 0.0, square = 0.0;
  for (size_t i = 0; i < kv.head_dim; ++i) {
    const double q = s.a.attn.q[size_t{head} * kv.head_dim + i];
    dot += q * keys[i] / s.n();
    square += q * q;
  }
  const uint32_t n_recent = std::min(s.a.rules.n_recent, s.n());
  const double sinks = log_sum_exp(s.n_sink(), extra_sink(s, head), [&](uint32_t i) { return s.logit(head, i); });
  const double recent = log_sum_exp(n_recent, kNothing, [&](uint32_t i) { return s.logit(head, s.a.attn.pos - i); });
  const double others =
      std::log(double(s.n())) + s.cap(s.a.attn.scale * dot) + 0.5 * double{s.a.history.heads[head].spread} * square;
  return sink_share(sinks, others, recent);
}

// Index of a token in a table; the other way round it is the same.
uint32_t index_of(const Stream& s, uint32_t kind, uint32_t token) {
  return kind == kByPosition ? token : s.n() - 1 - token;
}

bool listed(const Stream& s, uint32_t head, uint32_t kind, uint32_t token) {
  const HistoryView& view = s.a.history;
  const HeadHistory& h = view.heads[head];
  const float entry = view.entries_of(head, kind)[index_of(s, kind, token)];
  if (!s.a.rules.by_threshold) return entry > h.table[kind].floor;
  return entry > threshold_of(s.a.rules, h, kind, s.n());
}

bool above_mean(const Stream& s, uint32_t head, uint32_t token) {
  const HistoryView& view = s.a.history;
  for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
    const double mean = view.heads[head].table[kind].sum / s.n();
    if (view.entries_of(head, kind)[index_of(s, kind, token)] > mean) return true;
  }
  return false;
}

// Which tokens are candidates of the heads that look.
void mark_candidates(const Stream& s, const bool* looks, bool* is) {
  const uint32_t n = s.n();
  std::fill_n(is, n, s.a.size.candidates >= n);
  if (s.a.size.candidates >= n) return;
  uint32_t count = 0;
  const auto add = [&](uint32_t token) {
    count += is[token] ? 0 : 1;
    is[token] = true;
  };
  const uint32_t first = s.kv_head * s.group();
  const auto in_tables = [&](uint32_t g, uint32_t token) {
    return listed(s, first + g, kByPosition, token) || listed(s, first + g, kByDistance, token);
  };
  for (uint32_t g = 0; g < s.group(); ++g) {
    for (uint32_t token = 0; looks[g] && token < n; ++token) {
      if (in_tables(g, token)) add(token);
    }
  }
  float& fill = s.a.history.fill[s.kv_head];
  if (!s.a.rules.by_threshold) fill = next_fill(fill, count, s.a.size.candidates, s.group());
  for (uint32_t head = 0; head < s.group(); ++head) {
    const uint32_t g = (n + head) % s.group(), words = n / kNeighbourWord + 1;
    for (uint32_t i = 0; looks[g] && i < words * kNeighbourWord; ++i) {
      const uint32_t token = (first_word(n) + i / kNeighbourWord) % words * kNeighbourWord + i % kNeighbourWord;
      if (token >= n || !in_tables(g, token)) continue;
      for (const int32_t step : kHistoryNeighbours) {
        const int64_t next = int64_t{token} + step;
        if (next < 0 || next >= n || count >= s.a.size.candidates) continue;
        if (above_mean(s, first + g, static_cast<uint32_t>(next))) add(static_cast<uint32_t>(next));
      }
    }
  }
  for (uint32_t i = 0; i < std::min(s.a.rules.n_recent, n); ++i) is[n - 1 - i] = true;
  for (uint32_t token = 0; token < n; ++token) is[token] = is[token] || s.kept(token);
}

// Writes the tokens that a head attends to m.chosen; returns how many there are.
uint32_t choose(const Stream& s, uint32_t head) {
  double* logit = s.m.logit;
  uint32_t *order = s.m.order, *chosen = s.m.chosen, n = 0, n_kept = 0;
  for (uint32_t token = 0; token < s.n(); ++token) {
    if (s.m.candidate[token]) logit[token] = s.logit(head, token + s.n_sink());
    if (s.m.candidate[token] && !s.kept(token)) order[n++] = token;
    if (s.kept(token)) chosen[n_kept++] = token;
  }
  // The earlier one of equals.
  std::sort(order, order + n,
            [&](uint32_t x, uint32_t y) { return logit[x] != logit[y] ? logit[x] > logit[y] : x < y; });
  n = std::min(n, s.a.size.top);
  std::copy_n(order, n, chosen + n_kept);
  std::sort(chosen, chosen + n_kept + n);
  return n_kept + n;
}

// m.out += the value at a position times a weight.
void add_value(const Stream& s, uint32_t pos, double weight) {
  for (size_t c = 0; c < s.kv().head_dim; ++c) s.m.out[c] += weight * s.value(pos, c);
}

// The sinks' values with the weights exp(logit - base); returns the sum of these.
double add_sinks(const Stream& s, uint32_t head, double base) {
  double sum = std::exp(extra_sink(s, head) - base);
  std::fill_n(s.m.out, s.kv().head_dim, 0.0);
  for (uint32_t pos = 0; pos < s.n_sink(); ++pos) {
    const double weight = std::exp(s.logit(head, pos) - base);
    add_value(s, pos, weight);
    sum += weight;
  }
  return sum;
}

double highest_sink(const Stream& s, uint32_t head) {
  double high = extra_sink(s, head);
  for (uint32_t pos = 0; pos < s.n_sink(); ++pos) high = std::max(high, s.logit(head, pos));
  return high;
}

void bypass(const Stream& s, uint32_t head, double share) {
  const size_t d = s.kv().head_dim;
  const double sum = add_sinks(s, head, highest_sink(s, head));
  const double* values = s.a.history.sums + (size_t{s.kv_head} * 2 + 1) * d;
  for (size_t c = 0; c < d; ++c)
    s.a.attn.out[head * d + c] = static_cast<float>(share * s.m.out[c] / sum + (1.0 - share) * values[c] / s.n());
  if (s.a.n_chosen != nullptr) s.a.n_chosen[head] = 0;
}

// Half of a head's attention to the n tokens of m.chosen goes to its tables.
void learn(const Stream& s, uint32_t head, uint32_t n) {
  const HistoryView& view = s.a.history;
  HeadHistory& h = view.heads[head];
  h.scale *= s.a.rules.gamma;
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
      add_weight(h.table[kind], view.entries_of(head, kind)[index_of(s, kind, s.m.chosen[i])],
                 0.5 * s.m.share[i] / h.scale);
  }
  if (h.scale < kMinHistoryScale) rescale(view, head, s.n());
  relist(view, head, s.n(), s.a.rules, listed_by_head(view.fill[s.kv_head], s.a.size.candidates, s.group()), s.m.above);
}

void attend(const Stream& s, uint32_t head) {
  const size_t d = s.kv().head_dim;
  const uint32_t n = choose(s, head);
  double base = highest_sink(s, head), of_chosen = 0.0;
  for (uint32_t i = 0; i < n; ++i) base = std::max(base, s.m.logit[s.m.chosen[i]]);
  const double of_sinks = add_sinks(s, head, base);
  for (uint32_t i = 0; i < n; ++i) {
    s.m.share[i] = std::exp(s.m.logit[s.m.chosen[i]] - base);
    add_value(s, s.m.chosen[i] + s.n_sink(), s.m.share[i]);
    of_chosen += s.m.share[i];
  }
  for (size_t c = 0; c < d; ++c) s.a.attn.out[head * d + c] = static_cast<float>(s.m.out[c] / (of_sinks + of_chosen));
  for (uint32_t i = 0; i < n; ++i) s.m.share[i] = of_chosen > kMinLearned ? s.m.share[i] / of_chosen : 0.0;
  if (s.n() > 0) learn(s, head, n);
  if (s.a.chosen == nullptr) return;
  std::copy_n(s.m.chosen, n, s.a.chosen + size_t{head} * s.a.history.capacity);
  s.a.n_chosen[head] = n;
}

void attend_stream(const Stream& s) {
  const AttnHistoryArgs& a = s.a;
  take_tokens(a.attn.kv, a.history, s.kv_head, s.group(), a.rules.n_sink, a.attn.pos + 1);
  bool any = false;
  for (uint32_t g = 0; g < s.group(); ++g) {
    s.m.sink_share[g] = s.n() > a.size.top ? estimate(s, s.kv_head * s.group() + g) : 0.0;
    s.m.looks[g] = !(s.m.sink_share[g] > a.rules.eta);
    any = any || s.m.looks[g];
  }
  std::fill_n(s.m.candidate, s.n(), false);
  if (any) mark_candidates(s, s.m.looks, s.m.candidate);
  const uint32_t n_recent = s.n() > a.size.top && !any ? std::min(a.rules.n_recent, s.n()) : 0;
  const auto n_read = static_cast<uint32_t>(std::count(s.m.candidate, s.m.candidate + s.n(), true));
  a.n_read[s.kv_head] = s.n_sink() + n_recent + n_read;
  for (uint32_t g = 0; g < s.group(); ++g) {
    const uint32_t head = s.kv_head * s.group() + g;
    s.m.looks[g] ? attend(s, head) : bypass(s, head, s.m.sink_share[g]);
  }
}

}  // namespace

uint64_t history_scratch_bytes(uint64_t tokens, uint64_t group, uint64_t head_dim) {
  Arena arena;
  lay_out_history(arena, tokens, group, head_dim);
  return tokens == 0 ? 0 : arena.used();
}

// Finds nothing ahead.
Status attn_history(OpContext& cx, const AttnHistoryArgs& a) {
  if (a.ahead.tokens != nullptr) std::fill_n(a.ahead.n, a.attn.kv.n_kv_heads, 0u);
  if (a.only_looks_ahead) return {};
  const uint64_t tokens = uint64_t{a.history.capacity} + a.rules.n_sink, group = a.attn.n_heads / a.attn.kv.n_kv_heads;
  if (history_scratch_bytes(tokens, group, a.attn.kv.head_dim) > cx.scratch_bytes)
    return fail(WEIR_ERR_INTERNAL, "attn_history: too little scratch");
  Arena arena(cx.scratch, cx.scratch_bytes);
  const HistoryScratch scratch = lay_out_history(arena, tokens, group, a.attn.kv.head_dim);
  for (uint32_t kv_head = 0; kv_head < a.attn.kv.n_kv_heads; ++kv_head) attend_stream({a, scratch, kv_head});
  return {};
}

}  // namespace weir::ref
