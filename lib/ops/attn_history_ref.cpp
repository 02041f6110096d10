// Attention over the tokens that mattered to the steps before, defined: candidates by a scan of whole tables, attention
// over them in f64.
// Paper: LFPS, "learn from the past for fast sparse attention", arXiv:2506.15704; docs/algorithms.md, "LFPS", says what
// of it had to be reconstructed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/history_lists_ref.h"
#include "ops/history_sums.h"
#include "ops/ops.h"
#include "quant/half.h"

namespace weir::ref {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

double log_sum_exp(const std::vector<double>& x) {
  const double high = x.empty() ? kNothing : *std::max_element(x.begin(), x.end());
  if (high == kNothing) return high;
  double sum = 0.0;
  for (const double v : x) sum += std::exp(v - high);
  return high + std::log(sum);
}

// One KV head in a step.
struct Stream {
  const AttnHistoryArgs& a;
  uint32_t kv_head;

  const KvView& kv() const { return a.attn.kv; }
  uint32_t group() const { return a.attn.n_heads / kv().n_kv_heads; }
  uint32_t n_sink() const { return std::min(a.rules.n_sink, a.attn.pos + 1); }
  uint32_t n() const { return a.attn.pos + 1 - n_sink(); }
  const uint16_t* key(uint32_t pos) const {
    return kv().keys_of(kv_head, pos / kPageTokens) + size_t{pos % kPageTokens} * kv().head_dim;
  }
  const uint16_t* value(uint32_t pos) const { return key(pos) + size_t{kPageTokens} * kv().head_dim; }
  bool kept(uint32_t token) const {
    return (a.flags[size_t{kv_head} * kv().capacity + (token + n_sink()) / kPageTokens] & kPageKept) != 0;
  }
  double logit(uint32_t head, uint32_t pos) const {
    double dot = 0.0;
    for (size_t i = 0; i < kv().head_dim; ++i)
      dot += double{a.attn.q[size_t{head} * kv().head_dim + i]} * double{bf16_to_f32(key(pos)[i])};
    return cap(dot * a.attn.scale);
  }
  double cap(double x) const { return a.attn.soft_cap == 0.0f ? x : a.attn.soft_cap * std::tanh(x / a.attn.soft_cap); }
};

std::vector<double> sink_logits(const Stream& s, uint32_t head) {
  std::vector<double> logits;
  for (uint32_t pos = 0; pos < s.n_sink(); ++pos) logits.push_back(s.logit(head, pos));
  return logits;
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
  std::vector<double> recent, sinks = sink_logits(s, head);
  for (uint32_t i = 0; i < std::min(s.a.rules.n_recent, s.n()); ++i) recent.push_back(s.logit(head, s.a.attn.pos - i));
  if (s.a.attn.sinks != nullptr) sinks.push_back(s.a.attn.sinks[head]);
  const double others =
      std::log(double(s.n())) + s.cap(s.a.attn.scale * dot) + 0.5 * double{s.a.history.heads[head].spread} * square;
  return sink_share(log_sum_exp(sinks), others, log_sum_exp(recent));
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
std::vector<bool> candidates(const Stream& s, const std::vector<bool>& looks) {
  const uint32_t n = s.n();
  if (s.a.size.candidates >= n) return std::vector<bool>(n, true);
  std::vector<bool> is(n, false);
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
  return is;
}

// The tokens that a head attends.
std::vector<uint32_t> choose(const Stream& s, uint32_t head, const std::vector<bool>& is) {
  std::vector<uint32_t> order, chosen;
  std::vector<double> logit(s.n(), kNothing);
  for (uint32_t token = 0; token < s.n(); ++token) {
    if (is[token]) logit[token] = s.logit(head, token + s.n_sink());
    if (is[token] && !s.kept(token)) order.push_back(token);
    if (s.kept(token)) chosen.push_back(token);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) { return logit[x] > logit[y]; });
  order.resize(std::min<size_t>(order.size(), s.a.size.top));
  chosen.insert(chosen.end(), order.begin(), order.end());
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// out += the values at `pos` times the weights exp(logit - base), which it returns the sum of.
double add_values(const Stream& s, const std::vector<uint32_t>& pos, const std::vector<double>& logits, double base,
                  std::vector<double>& out) {
  double sum = 0.0;
  for (size_t i = 0; i < pos.size(); ++i) {
    const double weight = std::exp(logits[i] - base);
    sum += weight;
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * double{bf16_to_f32(s.value(pos[i])[c])};
  }
  return sum;
}

std::vector<uint32_t> sink_positions(const Stream& s) {
  std::vector<uint32_t> pos;
  for (uint32_t i = 0; i < s.n_sink(); ++i) pos.push_back(i);
  return pos;
}

void bypass(const Stream& s, uint32_t head, double share) {
  const size_t d = s.kv().head_dim;
  std::vector<double> logits = sink_logits(s, head), out(d, 0.0);
  const double extra = s.a.attn.sinks != nullptr ? double{s.a.attn.sinks[head]} : kNothing;
  double base = extra;
  for (const double x : logits) base = std::max(base, x);
  const double sum = add_values(s, sink_positions(s), logits, base, out) + std::exp(extra - base);
  const double* values = s.a.history.sums + (size_t{s.kv_head} * 2 + 1) * d;
  for (size_t c = 0; c < d; ++c)
    s.a.attn.out[head * d + c] = static_cast<float>(share * out[c] / sum + (1.0 - share) * values[c] / s.n());
  if (s.a.n_chosen != nullptr) s.a.n_chosen[head] = 0;
}

void learn(const Stream& s, uint32_t head, const std::vector<uint32_t>& chosen, const std::vector<double>& share) {
  const HistoryView& view = s.a.history;
  HeadHistory& h = view.heads[head];
  h.scale *= s.a.rules.gamma;
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind)
      add_weight(h.table[kind], view.entries_of(head, kind)[index_of(s, kind, chosen[i])], 0.5 * share[i] / h.scale);
  }
  if (h.scale < kLeastHistoryScale) rescale(view, head, s.n());
  relist(view, head, s.n(), s.a.rules, listed_by_head(view.fill[s.kv_head], s.a.size.candidates, s.group()));
}

void attend(const Stream& s, uint32_t head, const std::vector<bool>& is) {
  const size_t d = s.kv().head_dim;
  const std::vector<uint32_t> chosen = choose(s, head, is);
  std::vector<double> logits, sinks = sink_logits(s, head), out(d, 0.0);
  std::vector<uint32_t> positions;
  double base = s.a.attn.sinks != nullptr ? double{s.a.attn.sinks[head]} : kNothing;
  for (const uint32_t token : chosen) positions.push_back(token + s.n_sink());
  for (const uint32_t pos : positions) logits.push_back(s.logit(head, pos));
  for (const double x : logits) base = std::max(base, x);
  for (const double x : sinks) base = std::max(base, x);
  const double of_sinks = add_values(s, sink_positions(s), sinks, base, out);
  const double of_chosen = add_values(s, positions, logits, base, out);
  const double extra = s.a.attn.sinks != nullptr ? std::exp(s.a.attn.sinks[head] - base) : 0.0;
  for (size_t c = 0; c < d; ++c)
    s.a.attn.out[head * d + c] = static_cast<float>(out[c] / (of_sinks + of_chosen + extra));
  std::vector<double> share;
  for (const double x : logits) share.push_back(of_chosen > 0.0 ? std::exp(x - base) / of_chosen : 0.0);
  if (s.n() > 0) learn(s, head, chosen, share);
  if (s.a.chosen == nullptr) return;
  std::copy(chosen.begin(), chosen.end(), s.a.chosen + size_t{head} * s.a.history.capacity);
  s.a.n_chosen[head] = static_cast<uint32_t>(chosen.size());
}

}  // namespace

Status attn_history(OpContext&, const AttnHistoryArgs& a) {
  for (uint32_t kv_head = 0; kv_head < a.attn.kv.n_kv_heads; ++kv_head) {
    const Stream s = {a, kv_head};
    take_tokens(a.attn.kv, a.history, kv_head, s.group(), a.rules.n_sink, a.attn.pos + 1);
    std::vector<bool> looks(s.group(), true);
    std::vector<double> share(s.group(), 0.0);
    bool any = false;
    for (uint32_t g = 0; g < s.group(); ++g) {
      if (s.n() > a.size.top) share[g] = estimate(s, kv_head * s.group() + g);
      looks[g] = !(share[g] > a.rules.eta);
      any = any || looks[g];
    }
    const std::vector<bool> is = any ? candidates(s, looks) : std::vector<bool>(s.n(), false);
    const uint32_t n_recent = s.n() > a.size.top && !any ? std::min(a.rules.n_recent, s.n()) : 0;
    a.n_read[kv_head] = s.n_sink() + n_recent + static_cast<uint32_t>(std::count(is.begin(), is.end(), true));
    for (uint32_t g = 0; g < s.group(); ++g) {
      const uint32_t head = kv_head * s.group() + g;
      looks[g] ? attend(s, head, is) : bypass(s, head, share[g]);
    }
  }
  return {};
}

}  // namespace weir::ref
