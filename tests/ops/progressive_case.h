// One call of attn_progressive with seeded contents: whose pages are ranked by chance, and how much of a head's
// attention a list of them has.
#pragma once

#include <utility>

#include "tests/ops/attn_case.h"

namespace weir::test {

struct ProgressiveSpec {
  AttnSpec attn;
  float eps = 0.8f;
  uint32_t microbatch = 4, n_sink_pages = 0;
  bool bound = false;
  bool kept = false;                // some pages have kPageKept
  uint32_t every = 1;               // the list has each n-th row and the last
  uint32_t max_pages = UINT32_MAX;  // it has the most important ones, and all forced ones
  uint32_t quiet_pages = 0;
  float quiet_share = 0.1f;
};

class ProgressiveCase {
 public:
  ProgressiveCase(const ProgressiveSpec& s, uint64_t seed) : spec(s), attn(s.attn, seed), capacity(attn.kv.capacity()) {
    Random random(seed + 2);
    const size_t n_rows = size_t{s.attn.kv.n_kv_heads} * capacity;
    rank = random.normals(n_rows);
    for (float& x : rank) x = random.below(6) == 0 ? 0.5f : random.below(20) == 0 ? NAN : x;
    flags.assign(n_rows, 0);
    for (uint32_t& f : flags) f = s.kept && random.below(8) == 0 ? uint32_t{kPageKept} : uint32_t{kPagePinned};
    list_rows();
  }

  void list_rows() {
    select.assign(rank.size(), UINT32_MAX);
    n_select.assign(spec.attn.kv.n_kv_heads, 0);
    for (uint32_t head = 0; head < n_select.size(); ++head) {
      const uint32_t n = attn.kv.n_pages(head);
      for (uint32_t row = 0; row < n; ++row) {
        if (row % spec.every == 0 || row + 1 == n) select[attn.kv.at(head, row)] = UINT32_MAX, add(head, row);
      }
      if (n_select[head] > spec.max_pages) cut(head);
    }
  }

  void run(const Backend& backend) {
    list_rows();
    const std::vector<float> bound = bounds();
    AttnProgressiveArgs a = {attn.args(), select.data(), n_select.data(), {}};
    a.stop = stop(spec.bound ? bound.data() : nullptr);
    Machine machine(backend, attn.shapes());
    machine.check(backend.ops.attn_progressive(machine.cx(), a));
  }

  AttnStop stop(const float* bound) const {
    return {rank.data(), flags.data(),     bound,           spec.n_sink_pages, spec.microbatch,
            spec.eps,    spec.quiet_pages, spec.quiet_share};
  }
  // [n_heads, capacity] of the pages' digests, if the case stops by them.
  std::vector<float> bounds() {
    std::vector<float> bound(size_t{spec.attn.n_heads} * capacity, NAN);
    if (!spec.bound) return bound;
    Machine plain(reference_backend(), attn.shapes());
    const AttnPagedArgs a = attn.args();
    for (uint32_t head = 0; head < spec.attn.kv.n_kv_heads; ++head) {
      for (uint32_t row = 0; row < attn.kv.n_pages(head); ++row) {
        digest_page(DigestKind::kMinMax, a.kv.keys_of(head, row), attn.kv.len(head, row), a.kv.digest_of(head, row));
      }
    }
    plain.check(ref::page_score(plain.cx(), {bound.data(), a.q, a.kv, a.n_heads, 1.0f, a.scale}));
    return bound;
  }

  std::vector<uint32_t> list(uint32_t head) const {
    const auto first = select.begin() + static_cast<ptrdiff_t>(size_t{head} * capacity);
    return {first, first + n_select[head]};
  }

  // The share of a head's attention that the list has, in f64.
  double captured(uint32_t head) {
    const uint32_t kv_head = head / (spec.attn.n_heads / spec.attn.kv.n_kv_heads);
    const std::vector<uint32_t> rows = list(kv_head);
    double all = 0.0, part = 0.0;
    for (uint32_t row = 0; row < attn.kv.n_pages(kv_head); ++row) {
      double sum = 0.0;
      for (uint32_t j = 0; j < attn.kv.len(kv_head, row); ++j) sum += std::exp(logit(head, kv_head, row, j));
      all += sum;
      if (std::binary_search(rows.begin(), rows.end(), row)) part += sum;
    }
    return part / all;
  }

  ProgressiveSpec spec;
  AttnCase attn;
  uint32_t capacity;
  std::vector<float> rank;
  std::vector<uint32_t> flags, select, n_select;

 private:
  bool is_forced(uint32_t head, uint32_t row) {
    return row + 1 == attn.kv.n_pages(head) || row < spec.n_sink_pages ||
           (flags[attn.kv.at(head, row)] & kPageKept) != 0;
  }
  void cut(uint32_t head) {
    uint32_t* const first = &select[attn.kv.at(head, 0)];
    const auto order = [&](uint32_t row) {
      const float r = rank[attn.kv.at(head, row)];
      return std::pair(!is_forced(head, row), is_forced(head, row) ? 0.0f : std::isnan(r) ? INFINITY : -r);
    };
    std::stable_sort(first, first + n_select[head], [&](uint32_t x, uint32_t y) { return order(x) < order(y); });
    uint32_t n_forced = 0;
    for (uint32_t i = 0; i < n_select[head]; ++i) n_forced += is_forced(head, first[i]) ? 1 : 0;
    n_select[head] = std::max(spec.max_pages, n_forced);
    std::sort(first, first + n_select[head]);
  }
  void add(uint32_t head, uint32_t row) { select[attn.kv.at(head, n_select[head]++)] = row; }

  double logit(uint32_t head, uint32_t kv_head, uint32_t row, uint32_t token) {
    const uint32_t d = spec.attn.kv.head_dim;
    double dot = 0.0;
    for (uint32_t e = 0; e < d; ++e)
      dot += double{attn.q[size_t{head} * d + e]} * double{bf16_to_f32(attn.kv.key(kv_head, row, token)[e])};
    dot *= double{attn.scale};
    const double cap = spec.attn.soft_cap;
    return cap == 0.0 ? dot : cap * std::tanh(dot / cap);
  }
};

inline ProgressiveSpec progressive_spec(uint32_t head_dim, uint32_t group, uint32_t n_pages) {
  ProgressiveSpec s;
  s.attn.kv = {.n_kv_heads = 2, .head_dim = head_dim, .n_pages = n_pages, .last_len = 11, .gaps = n_pages > 4};
  s.attn.n_heads = 2 * group;
  s.attn.page_mass = true;
  return s;
}

}  // namespace weir::test
