// One call of attn_paged with random contents, and its dense computation in f64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/ops/paged_kv.h"

namespace weir::test {

// Head sizes and groups that every operation on heads is tested with: those that the GPU has kernels for, those that
// run in a kernel for a larger size, and groups that a kernel takes in parts.
inline constexpr uint32_t kHeadDims[] = {8, 24, 40, 64, 72, 80, 96, 112, 128, 160, 192, 256};
inline constexpr uint32_t kGroups[] = {1, 2, 3, 4, 5, 7, 8, 12, 16};
// Every size with some groups, and the sizes that kernels are made for with all.
constexpr bool is_tested_together(uint32_t head_dim, uint32_t group) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256 || group == 1 || group == 3 || group == 7 || group == 12;
}

struct AttnSpec {
  KvShapeSpec kv;
  uint32_t n_heads = 1;
  uint32_t n_tok = 1;  // the last tokens of the stream
  uint32_t window = 0, n_sink = 0;
  uint32_t n_sink_pages = 0;  // > 0: with a sink query
  uint32_t select_every = 0;  // > 0: rows 0, n, 2n, ... and the last ones, which hold the query rows
  bool page_mass = false;
  bool lse = false;
  bool list_per_head = false;  // with select_every: the lists differ between heads
  bool sinks = false;          // a logit for each head, from far below those of the tokens to far above
  float soft_cap = 0.0f;
  uint32_t head_window = 0;  // > 0: of every second KV head, which also sees the first head_sinks tokens
  uint32_t head_sinks = 0;
  uint32_t n_threads = 2;
};

class AttnCase {
 public:
  AttnCase(const AttnSpec& s, uint64_t seed) : spec(s), kv(s.kv, seed) {
    Random random(seed + 1);
    const size_t n = size_t{s.n_tok} * s.n_heads * s.kv.head_dim;
    q = random.normals(n);
    q_sink = random.normals(n);
    out.assign(n, NAN);
    mass.assign(size_t{s.n_heads} * kv.capacity(), 0.0f);
    lse.assign(size_t{s.n_tok} * s.n_heads, NAN);
    select.assign(size_t{n_lists()} * kv.capacity(), 0);
    for (uint32_t list = 0; list < n_lists(); ++list) n_select.push_back(choose_rows(list));
    scale = 1.0f / std::sqrt(static_cast<float>(s.kv.head_dim));
    for (uint32_t head = 0; head < s.n_heads; ++head)
      sinks.push_back(static_cast<float>(head % 5) * 3.0f - 4.0f + random.normal());
    for (uint32_t head = 0; head < s.kv.n_kv_heads; ++head) head_windows.push_back(head % 2 == 0 ? s.head_window : 0);
  }

  AttnPagedArgs args() {
    AttnPagedArgs a = {};
    a.out = out.data();
    a.q = q.data();
    a.q_sink = spec.n_sink_pages > 0 ? q_sink.data() : nullptr;
    a.kv = kv.view();
    a.n_tok = spec.n_tok;
    a.n_heads = spec.n_heads;
    a.pos = kv.end_pos() - spec.n_tok;
    a.scale = scale;
    a.n_sink_pages = spec.n_sink_pages;
    a.n_sink = spec.n_sink;
    a.window = spec.window;
    a.select = spec.select_every > 0 ? select.data() : nullptr;
    a.n_select = spec.select_every > 0 ? n_select.data() : nullptr;
    a.list_per_head = spec.list_per_head;
    a.page_mass = spec.page_mass ? mass.data() : nullptr;
    a.lse = spec.lse ? lse.data() : nullptr;
    a.sinks = spec.sinks ? sinks.data() : nullptr;
    a.soft_cap = spec.soft_cap;
    a.head_windows = spec.head_window > 0 ? head_windows.data() : nullptr;
    a.head_sinks = spec.head_sinks;
    return a;
  }
  uint32_t n_lists() const { return spec.list_per_head ? spec.n_heads : spec.kv.n_kv_heads; }
  uint32_t kv_head_of_list(uint32_t list) const { return list / (n_lists() / spec.kv.n_kv_heads); }
  OpShapes shapes() const {
    OpShapes s;
    s.n_threads = spec.n_threads;
    s.max_tok = spec.n_tok;
    s.max_cols = spec.n_heads * spec.kv.head_dim;
    s.max_rows = spec.n_heads * spec.kv.head_dim;
    s.n_heads = spec.n_heads;
    s.n_kv_heads = spec.kv.n_kv_heads;
    s.head_dim = spec.kv.head_dim;
    s.max_pages = kv.capacity();
    return s;
  }
  void run(const Backend& backend) { run(backend, args()); }
  void run(const Backend& backend, const AttnPagedArgs& a) {
    Machine machine(backend, shapes());
    machine.check(backend.ops.attn_paged(machine.cx(), a));
  }

  // The same in f64, over all tokens at once; `dense_lse` gets the lse of every row and head.
  std::vector<float> dense(std::vector<float>* dense_lse = nullptr) {
    const AttnPagedArgs a = args();
    const size_t d = spec.kv.head_dim;
    std::vector<float> want(out.size());
    for (uint32_t tok = 0; tok < spec.n_tok; ++tok) {
      for (uint32_t head = 0; head < spec.n_heads; ++head) {
        const double row_lse = dense_row(a, tok, head, want.data() + (size_t{tok} * spec.n_heads + head) * d);
        if (dense_lse != nullptr) dense_lse->push_back(static_cast<float>(row_lse));
      }
    }
    return want;
  }

  AttnSpec spec;
  PagedKv kv;
  std::vector<float> q, q_sink, out, mass, lse, sinks;
  std::vector<uint32_t> select, n_select, head_windows;
  float scale;

 private:
  uint32_t choose_rows(uint32_t list) {
    uint32_t n = 0;
    const uint32_t n_pages = kv.n_pages(kv_head_of_list(list)), open = std::min(n_pages, spec.n_tok / kPageTokens + 1);
    for (uint32_t row = 0; row < n_pages; ++row) {
      if (spec.select_every > 0 && (row % spec.select_every == list % spec.select_every || row + open >= n_pages))
        select[size_t{list} * kv.capacity() + n++] = row;
    }
    return n;
  }

  double dense_row(const AttnPagedArgs& all, uint32_t tok, uint32_t head, float* to) {
    const size_t d = spec.kv.head_dim, q_at = (size_t{tok} * spec.n_heads + head) * d;
    const uint32_t kv_head = head / (spec.n_heads / spec.kv.n_kv_heads);
    const AttnPagedArgs a = args_of_head(all, kv_head);
    const uint32_t t = a.pos + tok, list = spec.list_per_head ? head : kv_head;
    std::vector<double> logit;
    std::vector<const uint16_t*> value;
    for (uint32_t i = 0; i < (a.select != nullptr ? n_select[list] : kv.n_pages(kv_head)); ++i) {
      const uint32_t row = a.select != nullptr ? select[size_t{list} * kv.capacity() + i] : i;
      for (uint32_t j = 0; j < kv.len(kv_head, row); ++j) {
        const uint32_t pos = kv.first_pos(kv_head, row) + j;
        if (pos > t || (a.window > 0 && pos >= a.n_sink && pos + a.window <= t)) continue;
        const bool is_sink = row < a.n_sink_pages && (a.window == 0 || pos < a.n_sink);
        const float* query = (a.q_sink != nullptr && is_sink ? a.q_sink : a.q) + q_at;
        double dot = 0.0;
        for (size_t e = 0; e < d; ++e) dot += double{query[e]} * double{bf16_to_f32(kv.key(kv_head, row, j)[e])};
        dot *= double{scale};
        logit.push_back(a.soft_cap != 0.0f ? double{a.soft_cap} * std::tanh(dot / double{a.soft_cap}) : dot);
        value.push_back(kv.value(kv_head, row, j));
      }
    }
    double high = -std::numeric_limits<double>::infinity(), sum = 0.0;
    if (a.sinks != nullptr) high = double{a.sinks[head]};
    for (double x : logit) high = std::max(high, x);
    if (a.sinks != nullptr) sum = std::exp(double{a.sinks[head]} - high);
    for (double& x : logit) sum += x = std::exp(x - high);  // logits become weights
    for (size_t e = 0; e < d; ++e) {
      double o = 0.0;
      for (size_t j = 0; j < logit.size(); ++j) o += logit[j] / sum * double{bf16_to_f32(value[j][e])};
      to[e] = static_cast<float>(o);
    }
    return high + std::log(sum);
  }
};

}  // namespace weir::test
