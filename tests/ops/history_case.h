// Attention over what mattered before (attn_history, history_begin), for tests: a stream that grows token by token,
// with tables of attention's history. What does not exist yet is NaN, so that reading it is detected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ops/attn_case.h"

namespace weir::test {

constexpr uint32_t pages_for(uint32_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; }

// The tables of a layer. They can be copied, so that two operations can start from the same.
class HistoryTables {
 public:
  HistoryTables(uint32_t n_kv_heads, uint32_t group, uint32_t head_dim, uint32_t capacity, uint32_t list_capacity)
      : entries(size_t{n_kv_heads} * group * kHistoryKinds * capacity, NAN),
        lists(size_t{n_kv_heads} * group * kHistoryKinds * list_capacity + kGuard, UINT32_MAX),
        heads(size_t{n_kv_heads} * group),
        sums(size_t{n_kv_heads} * 2 * head_dim, 0.0),
        n_summed(n_kv_heads, 0),
        n_known(n_kv_heads, 0),
        fill(n_kv_heads, min_fill()),
        capacity_(capacity),
        list_capacity_(list_capacity) {}

  HistoryView view() {
    return {entries.data(), lists.data(), heads.data(), sums.data(),   n_summed.data(),
            n_known.data(), fill.data(),  capacity_,    list_capacity_};
  }
  float& entry(uint32_t head, uint32_t kind, uint32_t i) { return view().entries_of(head, kind)[i]; }
  HistoryTable& table(uint32_t head, uint32_t kind) { return heads[head].table[kind]; }
  // The decayed weights of a table, n of them.
  std::vector<float> weights(uint32_t head, uint32_t kind, uint32_t n) {
    std::vector<float> w(n);
    for (uint32_t i = 0; i < n; ++i) w[i] = static_cast<float>(entry(head, kind, i) * heads[head].scale);
    return w;
  }
  double sum(uint32_t head, uint32_t kind, uint32_t n) {
    double sum = 0.0;
    for (float w : weights(head, kind, n)) sum += double{w};
    return sum;
  }
  // Writes a table by hand; its list has what is above the floor.
  void set(uint32_t head, uint32_t kind, const std::vector<float>& values, float floor) {
    HistoryTable& t = table(head, kind);
    std::copy(values.begin(), values.end(), view().entries_of(head, kind));
    sum_table(t, values.data(), static_cast<uint32_t>(values.size()));
    t.floor = floor;
    t.n_list = 0;
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (values[i] > floor) view().list_of(head, kind)[t.n_list++] = i;
    }
  }

  // What holds between steps: no weight is negative, the sums are those of the entries, and a list has each entry above
  // the floor once, and no other.
  void check(uint32_t head, uint32_t n, const char* what) {
    for (uint32_t kind = 0; kind < kHistoryKinds; ++kind) {
      const HistoryTable& t = table(head, kind);
      HistoryTable sums_now;
      sum_table(sums_now, view().entries_of(head, kind), n);
      // Sums in f64 of up to some thousand changes.
      if (!near(t.sum, sums_now.sum) || !near(t.sum2, sums_now.sum2) || !near(t.sum4, sums_now.sum4))
        fail_msg("%s: head %u, table %u: sums are %g, %g, %g and should be %g, %g, %g", what, head, kind, t.sum, t.sum2,
                 t.sum4, sums_now.sum, sums_now.sum2, sums_now.sum4);
      if (t.n_list > list_capacity_) fail_msg("%s: %u listed, room for %u", what, t.n_list, list_capacity_);
      const uint32_t* list = view().list_of(head, kind);
      std::vector<uint32_t> listed(list, list + t.n_list), want;
      std::sort(listed.begin(), listed.end());
      for (uint32_t i = 0; i < n; ++i) {
        if (!(entry(head, kind, i) >= 0.0f)) fail_msg("%s: entry %u is %g", what, i, double{entry(head, kind, i)});
        if (entry(head, kind, i) > t.floor) want.push_back(i);
      }
      if (listed != want)
        fail_msg("%s: head %u, table %u: %zu are listed, %zu are above the floor", what, head, kind, listed.size(),
                 want.size());
    }
    for (size_t i = lists.size() - kGuard; i < lists.size(); ++i) assert_int_equal(lists[i], UINT32_MAX);
  }

  std::vector<float> entries;
  std::vector<uint32_t> lists;
  std::vector<HeadHistory> heads;
  std::vector<double> sums;
  std::vector<uint32_t> n_summed, n_known;
  std::vector<float> fill;

 private:
  static constexpr size_t kGuard = 64;
  // What a step adds is summed in f32.
  static bool near(double got, double want) { return std::fabs(got - want) <= 1e-5 * want; }

  uint32_t capacity_, list_capacity_;
};

struct HistorySpec {
  uint32_t n_kv_heads = 2, group = 3, head_dim = 64;
  uint32_t n_start = 300, n_steps = 14;  // tokens of the prompt, and after it
  uint32_t rows = 20;
  HistoryRules rules;
  HistorySize size = {60, 24};
  float key_scale = 2.0f;
  float steady = 1.0f;      // part of a query that is the same in all steps
  float sink_pull = 0.0f;   // added to the logits of the sinks, times head / n_heads
  uint32_t kept_every = 0;  // > 0: every n-th page is pinned
  bool sinks = false;       // a logit for each head
  float soft_cap = 0.0f;
  uint32_t n_threads = 2;
  uint32_t n_heads() const { return n_kv_heads * group; }
};

// What a step wrote.
struct HistoryStep {
  std::vector<float> out;                     // [n_heads, head_dim]
  std::vector<std::vector<uint32_t>> chosen;  // of each head
  std::vector<uint32_t> n_read, n_found;      // found ahead
};

class HistoryCase {
 public:
  HistoryCase(const HistorySpec& s, uint64_t seed)
      : spec(s),
        n_all(s.n_start + s.n_steps),
        kv(KvShapeSpec{.n_kv_heads = s.n_kv_heads,
                       .head_dim = s.head_dim,
                       .n_pages = pages_for(n_all),
                       .spare_rows = 2,
                       .key_scale = s.key_scale},
           seed),
        scale(1.0f / std::sqrt(static_cast<float>(s.head_dim))) {
    Random random(seed + 1);
    const std::vector<float> steady = random.normals(size_t{s.n_heads()} * s.head_dim, s.steady);
    q = random.normals(n_all * steady.size());
    for (size_t i = 0; i < q.size(); ++i) q[i] += steady[i % steady.size()];
    for (uint32_t head = 0; head < s.n_heads(); ++head)
      sinks.push_back(static_cast<float>(head % 4) * 3.0f - 4.0f + random.normal());
    flags.assign(size_t{s.n_kv_heads} * kv.capacity(), uint32_t{kPagePinned});
    for (size_t i = 0; s.kept_every != 0 && i < flags.size(); i += s.kept_every) flags[i] |= kPageKept;
    if (s.sink_pull != 0.0f) pull_to_sinks(steady);
    pool_ = kv.pool();
    rewind_to(s.n_start);
  }

  // Only the first n tokens exist.
  void rewind_to(uint32_t n) {
    kv.pool() = pool_;
    n_tokens = n;
    for (uint32_t head = 0; head < spec.n_kv_heads; ++head) {
      for (uint32_t pos = n; pos < pages_for(n_all) * kPageTokens; ++pos) {
        for (uint32_t e = 0; e < spec.head_dim; ++e) key(head, pos)[e] = value(head, pos)[e] = PagedKv::kNan;
      }
    }
    set_tables();
  }
  void append() {
    assert_true(n_tokens < n_all);
    const size_t bytes = spec.head_dim * sizeof(uint16_t);
    for (uint32_t head = 0; head < spec.n_kv_heads; ++head) {
      for (uint16_t* to : {key(head, n_tokens), value(head, n_tokens)})
        std::memcpy(to, &pool_[static_cast<size_t>(to - kv.pool().data())], bytes);
    }
    ++n_tokens;
    set_tables();
  }

  uint16_t* key(uint32_t kv_head, uint32_t pos) { return kv.key(kv_head, pos / kPageTokens, pos % kPageTokens); }
  uint16_t* value(uint32_t kv_head, uint32_t pos) { return kv.value(kv_head, pos / kPageTokens, pos % kPageTokens); }
  uint32_t n_sink() const { return std::min(spec.rules.n_sink, n_tokens); }
  uint32_t n() const { return n_tokens - n_sink(); }  // tokens behind the sinks
  const float* query(uint32_t head, uint32_t pos) const {
    return &q[(size_t{pos} * spec.n_heads() + head) * spec.head_dim];
  }

  HistoryTables tables() const {
    return HistoryTables(spec.n_kv_heads, spec.group, spec.head_dim, n_all,
                         static_cast<uint32_t>(list_room(spec.rules, spec.size, n_all)));
  }
  OpShapes shapes() const {
    OpShapes s;
    s.n_threads = spec.n_threads;
    s.max_cols = s.max_rows = spec.n_heads() * spec.head_dim;
    s.n_heads = spec.n_heads();
    s.n_kv_heads = spec.n_kv_heads;
    s.head_dim = spec.head_dim;
    s.max_pages = kv.capacity();
    s.history_tokens = n_all + spec.rules.n_sink;
    return s;
  }

  // The prompt has just ended.
  void begin(const Backend& backend, HistoryTables& t) {
    const uint32_t rows = std::min(spec.rows, n_tokens), first = n_tokens - rows;
    Machine machine(backend, shapes());
    machine.check(
        backend.ops.history_begin(machine.cx(), {query(0, first), kv.view(), rows, spec.n_heads(), first, scale,
                                                 spec.soft_cap, t.view(), spec.rules, spec.size.candidates}));
  }
  // Attention of the last token. n_ahead > 0: a first call looks ahead, with room for so many candidates of each KV
  // head.
  HistoryStep step(const Backend& backend, HistoryTables& t, uint32_t n_ahead = 0) {
    HistoryStep r;
    r.out.assign(size_t{spec.n_heads()} * spec.head_dim, NAN);
    r.n_read.assign(spec.n_kv_heads, UINT32_MAX);
    std::vector<uint32_t> chosen(size_t{spec.n_heads()} * n_all, UINT32_MAX), n_chosen(spec.n_heads(), UINT32_MAX);
    AttnHistoryArgs a = {{},           t.view(),        spec.rules,    spec.size,
                         flags.data(), r.n_read.data(), chosen.data(), n_chosen.data()};
    a.attn = attn_args(r.out.data());
    Machine machine(backend, shapes());
    std::vector<uint32_t> ahead(size_t{spec.n_kv_heads} * (n_ahead + kVectorPad), UINT32_MAX);
    std::vector<uint32_t> n_found(spec.n_kv_heads, UINT32_MAX);
    std::vector<float> fill(spec.n_kv_heads, NAN);
    if (n_ahead != 0) {
      a.ahead = {ahead.data(), n_found.data(), fill.data(), n_ahead};
      const std::vector<float> fill_before = t.fill;
      AttnHistoryArgs first = a;
      first.attn.q = first.attn.out = nullptr;
      first.n_read = first.chosen = first.n_chosen = nullptr;
      first.only_looks_ahead = true;
      machine.check(backend.ops.attn_history(machine.cx(), first));
      assert_true(t.fill == fill_before);
      r.n_found = n_found;
    }
    machine.check(backend.ops.attn_history(machine.cx(), a));
    if (n_ahead != 0) assert_true(n_found == std::vector<uint32_t>(spec.n_kv_heads, 0u));
    for (uint32_t head = 0; head < spec.n_heads(); ++head) {
      const auto first = chosen.begin() + static_cast<ptrdiff_t>(size_t{head} * n_all);
      r.chosen.emplace_back(first, first + n_chosen[head]);
    }
    return r;
  }
  AttnPagedArgs attn_args(float* out) {
    AttnPagedArgs a = {};
    a.out = out;
    a.q = query(0, n_tokens - 1);
    a.kv = kv.view();
    a.n_tok = 1;
    a.n_heads = spec.n_heads();
    a.pos = n_tokens - 1;
    a.scale = scale;
    a.sinks = spec.sinks ? sinks.data() : nullptr;
    a.soft_cap = spec.soft_cap;
    return a;
  }

  // Logit of the last token's query, in f64.
  double logit(uint32_t head, uint32_t pos) { return logit_of(head, n_tokens - 1, pos); }
  double logit_of(uint32_t head, uint32_t row, uint32_t pos) {
    double dot = 0.0;
    for (uint32_t e = 0; e < spec.head_dim; ++e)
      dot += double{query(head, row)[e]} * double{bf16_to_f32(key(head / spec.group, pos)[e])};
    dot *= double{scale};
    const double cap = spec.soft_cap;
    return cap == 0.0 ? dot : cap * std::tanh(dot / cap);
  }
  // Attention over these positions alone, in f64; the weights are left in `weight`.
  std::vector<float> attention(uint32_t head, const std::vector<uint32_t>& positions,
                               std::vector<double>* weight = nullptr) {
    std::vector<double> w, o(spec.head_dim, 0.0);
    for (uint32_t pos : positions) w.push_back(logit(head, pos));
    double high = *std::max_element(w.begin(), w.end()), sum = 0.0;
    if (spec.sinks) high = std::max(high, double{sinks[head]}), sum = std::exp(double{sinks[head]} - high);
    for (double& x : w) sum += x = std::exp(x - high);
    for (size_t i = 0; i < w.size(); ++i) {
      w[i] /= sum;
      for (uint32_t e = 0; e < spec.head_dim; ++e)
        o[e] += w[i] * double{bf16_to_f32(value(head / spec.group, positions[i])[e])};
    }
    if (weight != nullptr) *weight = w;
    return std::vector<float>(o.begin(), o.end());
  }

  HistorySpec spec;
  uint32_t n_all, n_tokens = 0;
  PagedKv kv;
  float scale;
  std::vector<float> q, sinks;  // q [positions, n_heads, head_dim]
  std::vector<uint32_t> flags;  // [n_kv_heads, capacity]

 private:
  void set_tables() {
    for (uint32_t head = 0; head < spec.n_kv_heads; ++head) {
      kv.n_pages(head) = pages_for(n_tokens);
      for (uint32_t row = 0; row < pages_for(n_all); ++row)
        kv.len(head, row) = std::min(kPageTokens, n_tokens - std::min(n_tokens, row * kPageTokens));
    }
  }
  // The sinks' keys lie along the steady part of the queries of a group's first head.
  void pull_to_sinks(const std::vector<float>& steady) {
    for (uint32_t head = 0; head < spec.n_kv_heads; ++head) {
      const float* along = &steady[size_t{head} * spec.group * spec.head_dim];
      const float pull = spec.sink_pull / std::sqrt(static_cast<float>(spec.head_dim));
      for (uint32_t pos = 0; pos < spec.rules.n_sink; ++pos) {
        for (uint32_t e = 0; e < spec.head_dim; ++e) key(head, pos)[e] = f32_to_bf16(pull * along[e]);
      }
    }
  }

  std::vector<uint16_t> pool_;  // with all tokens
};

}  // namespace weir::test
