// ops: token_mass. Mirrors lib/ops/token_mass_ref.cpp, lib/cpu/token_mass.cpp.
#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

constexpr float kUntouched = -77.0f;

// The last `n_tok` rows of an attention case. Their lse comes from the reference, so that all backends get the same
// inputs.
class MassCase {
 public:
  MassCase(const AttnSpec& s, uint64_t seed, bool ragged = false) : attn(s, seed) {
    if (ragged) attn.kv.n_pages(0) = s.kv.n_pages / 2;
    lse.assign(size_t{s.n_tok} * s.n_heads, NAN);
    page_mass.assign(size_t{s.n_heads} * attn.kv.capacity(), NAN);
    AttnPagedArgs a = attn.args();
    a.lse = lse.data();
    a.page_mass = page_mass.data();
    attn.run(reference_backend(), a);
  }

  // Masses of query rows [first, n_tok).
  std::vector<float> run(const Backend& backend, uint32_t first = 0) {
    const AttnPagedArgs a = attn.args();
    const uint32_t n_heads = attn.spec.n_heads;
    std::vector<float> mass(attn.kv.at(attn.spec.kv.n_kv_heads, 0) * kPageTokens, kUntouched);
    Machine machine(backend, attn.shapes());
    machine.check(backend.ops.token_mass(
        machine.cx(), {mass.data(), a.q + size_t{first} * n_heads * a.kv.head_dim, lse.data() + size_t{first} * n_heads,
                       a.kv, a.n_tok - first, n_heads, a.pos + first, a.scale, a.window, a.soft_cap}));
    return mass;
  }

  // Calls f(kv head, page, token, index into mass) for every token in use.
  template <class F>
  void for_tokens(const F& f) {
    for (uint32_t head = 0; head < attn.spec.kv.n_kv_heads; ++head) {
      for (uint32_t row = 0; row < attn.kv.n_pages(head); ++row) {
        for (uint32_t t = 0; t < attn.kv.len(head, row); ++t) f(head, row, t, attn.kv.at(head, row) * kPageTokens + t);
      }
    }
  }

  // The same by a softmax in f64 over all tokens of each row and head.
  std::vector<double> plain() {
    const AttnPagedArgs a = attn.args();
    const uint32_t group = a.n_heads / a.kv.n_kv_heads;
    std::vector<double> mass(attn.kv.at(a.kv.n_kv_heads, 0) * kPageTokens, double{kUntouched});
    for_tokens([&](uint32_t, uint32_t, uint32_t, size_t i) { mass[i] = 0.0; });
    for (uint32_t r = 0; r < a.n_tok; ++r) {
      for (uint32_t query = 0; query < a.n_heads; ++query) {
        double sum = a.sinks != nullptr ? std::exp(double{a.sinks[query]}) : 0.0;
        std::vector<std::pair<size_t, double>> weights;
        for_tokens([&](uint32_t head, uint32_t row, uint32_t t, size_t i) {
          const uint32_t token = attn.kv.first_pos(head, row) + t;
          if (head != query / group || token > a.pos + r) return;
          if (a.window != 0 && token + a.window <= a.pos + r) return;
          double dot = 0.0;
          for (size_t e = 0; e < a.kv.head_dim; ++e)
            dot += double{a.q[(size_t{r} * a.n_heads + query) * a.kv.head_dim + e]} *
                   double{bf16_to_f32(attn.kv.key(head, row, t)[e])};
          dot *= double{a.scale};
          if (a.soft_cap != 0.0f) dot = double{a.soft_cap} * std::tanh(dot / double{a.soft_cap});
          weights.emplace_back(i, std::exp(dot));
          sum += weights.back().second;
        });
        for (const auto& [i, weight] : weights) mass[i] += weight / sum;
      }
    }
    return mass;
  }

  AttnCase attn;
  std::vector<float> lse, page_mass;
};

AttnSpec spec_of(uint32_t d, uint32_t group, uint32_t n_rows, bool gaps = false) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 2, .head_dim = d, .n_pages = 4, .last_len = 5, .gaps = gaps};
  s.n_heads = 2 * group;
  s.n_tok = n_rows;
  s.n_threads = 3;
  return s;
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const std::string& name, const AttnSpec& s, bool ragged) {
    const auto run = [=](const Backend& b) -> std::vector<Output> { return {{"mass", MassCase(s, 7, ragged).run(b)}}; };
    list.push_back(
        {"token_mass__" + name, run, 1e-11, "f32 sums in another order and another exp: about 1e-6 of a mass"});
  };
  for (uint32_t d : kHeadDims) {
    for (uint32_t group : kGroups) {
      if (!is_tested_together(d, group)) continue;
      for (uint32_t n_rows : {1u, 19u})
        add("d" + std::to_string(d) + "_g" + std::to_string(group) + "_" + std::to_string(n_rows) + "_rows",
            spec_of(d, group, n_rows, n_rows == 19), n_rows == 1);
    }
  }
  add("head_dim_20", spec_of(20, 3, 19, true), false);
  AttnSpec odd = spec_of(23, 2, 3);
  add("odd_head_dim", odd, true);
  AttnSpec many = spec_of(64, 3, 32);
  many.kv.n_pages = 70;
  add("many_pages", many, true);
  many.kv.key_scale = 30.0f;  // weights of 0 and 1
  add("large_logits", many, false);
  many.soft_cap = 50.0f;
  add("soft_cap_of_large_logits", many, false);
  for (uint32_t d : {20u, 64u, 128u, 256u}) {
    AttnSpec bent = spec_of(d, 3, 19);
    bent.soft_cap = 1.5f;
    bent.sinks = true;
    add("sinks_and_soft_cap_d" + std::to_string(d), bent, true);
  }
  return list;
}

void equals_plain_softmax(const Backend& backend) {
  for (uint32_t d : {20u, 64u, 128u}) {
    for (uint32_t n_rows : {1u, 2u, 40u}) {
      for (bool gaps : {false, true}) {
        MassCase c(spec_of(d, 3, n_rows, gaps), d + n_rows, n_rows == 1);
        const std::vector<float> got = c.run(backend);
        const std::vector<double> want = c.plain();
        for (size_t i = 0; i < got.size(); ++i)  // nothing is written beyond a page's tokens or the table
          assert_true(std::fabs(double{got[i]} - want[i]) <= 1e-5 * std::fabs(want[i]) + 1e-9);
      }
    }
  }
}

// Windows that end in the open page, in a page before it, at a page's edge, and before the conversation's beginning.
void equals_plain_softmax_in_a_window(const Backend& backend) {
  for (uint32_t window : {1u, 3u, 16u, 17u, 40u, 1000u}) {
    for (uint32_t n_rows : {1u, 2u, 40u}) {
      AttnSpec s = spec_of(64, 3, n_rows);
      s.window = window;
      MassCase c(s, window + n_rows);
      const std::vector<float> got = c.run(backend);
      const std::vector<double> want = c.plain();
      for (size_t i = 0; i < got.size(); ++i)
        assert_true(std::fabs(double{got[i]} - want[i]) <= 1e-5 * std::fabs(want[i]) + 1e-9);
    }
  }
}

// The sinks are in the lse, so the masses are shares of a softmax that has them.
void equals_plain_softmax_with_sinks_and_soft_cap(const Backend& backend) {
  for (uint32_t n_rows : {1u, 2u, 40u}) {
    AttnSpec s = spec_of(64, 3, n_rows);
    s.sinks = true;
    s.soft_cap = 1.0f;
    MassCase c(s, n_rows);
    const std::vector<float> got = c.run(backend);
    const std::vector<double> want = c.plain();
    for (size_t i = 0; i < got.size(); ++i)
      assert_true(std::fabs(double{got[i]} - want[i]) <= 1e-5 * std::fabs(want[i]) + 1e-9);
  }
}

// For one row and one head the weights sum to 1; for several, to their number.
void weights_sum_to_one_per_row_and_head(const Backend& backend) {
  for (uint32_t n_rows : {1u, 17u}) {
    for (uint32_t group : {1u, 4u}) {
      MassCase c(spec_of(64, group, n_rows), 3);
      const std::vector<float> mass = c.run(backend);
      std::vector<double> sum(2, 0.0);
      c.for_tokens([&](uint32_t head, uint32_t, uint32_t, size_t i) { sum[head] += double{mass[i]}; });
      for (double x : sum) assert_true(std::fabs(x / (n_rows * group) - 1.0) < 1e-5);
    }
  }
}

// Per page, the last row's weights are the masses that attn_paged reports.
void last_row_agrees_with_page_mass(const Backend& backend) {
  for (uint32_t group : {1u, 3u}) {
    MassCase c(spec_of(80, group, 21, true), 4);
    const std::vector<float> mass = c.run(backend, 20);
    for (uint32_t head = 0; head < 2; ++head) {
      for (uint32_t row = 0; row < c.attn.kv.n_pages(head); ++row) {
        double want = 0.0, got = 0.0;
        for (uint32_t g = 0; g < group; ++g)
          want += double{c.page_mass[size_t{head * group + g} * c.attn.kv.capacity() + row]};
        for (uint32_t t = 0; t < c.attn.kv.len(head, row); ++t)
          got += double{mass[c.attn.kv.at(head, row) * kPageTokens + t]};
        assert_true(std::fabs(got - want) <= 1e-5 * want + 1e-8);
      }
    }
  }
}

// Rows are added: the sum of two calls is one call.
void rows_add_up(const Backend& backend) {
  MassCase c(spec_of(64, 2, 20), 5);
  const std::vector<float> all = c.run(backend), late = c.run(backend, 13);
  for (size_t i = size_t{13} * c.attn.spec.n_heads; i < c.lse.size(); ++i) c.lse[i] = INFINITY;  // exp(-inf) is 0
  const std::vector<float> early = c.run(backend);
  c.for_tokens([&](uint32_t, uint32_t, uint32_t, size_t i) {
    assert_true(std::fabs(double{early[i]} + double{late[i]} - double{all[i]}) <= 1e-5 * std::fabs(double{all[i]}));
  });
}

// Two tokens with logits ln 3 and 0 seen by row 1; row 0 sees the first only. Masses 1 + 3/4 and 1/4.
void two_tokens_golden(const Backend& backend) {
  AttnSpec s;
  s.kv = {.n_kv_heads = 1, .head_dim = 8, .n_pages = 1, .last_len = 2};
  s.n_heads = 1;
  s.n_tok = 2;
  MassCase c(s, 1);
  std::fill_n(c.attn.kv.key(0, 0, 0), 16, uint16_t{0});
  c.attn.kv.key(0, 0, 0)[0] = f32_to_bf16(1.0f);
  c.attn.scale = 1.0f;
  c.attn.q[0] = c.attn.q[8] = std::log(3.0f);
  c.lse = {std::log(3.0f), std::log(4.0f)};
  const std::vector<float> mass = c.run(backend);
  assert_float_equal(mass[0], 1.75f, 1e-6f);
  assert_float_equal(mass[1], 0.25f, 1e-6f);
  assert_float_equal(mass[2], kUntouched, 0.0f);
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
#define WEIR_PROPERTY(name) \
  { "token_mass__" #name, name }
  return run_group(
      "ops/token_mass", cases(),
      {WEIR_PROPERTY(equals_plain_softmax), WEIR_PROPERTY(equals_plain_softmax_in_a_window),
       WEIR_PROPERTY(equals_plain_softmax_with_sinks_and_soft_cap), WEIR_PROPERTY(weights_sum_to_one_per_row_and_head),
       WEIR_PROPERTY(last_row_agrees_with_page_mass), WEIR_PROPERTY(rows_add_up), WEIR_PROPERTY(two_tokens_golden)});
#undef WEIR_PROPERTY
}
