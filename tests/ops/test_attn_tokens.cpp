// ops: attn_paged over the best tokens of the listed pages (TokenChoice). Mirrors lib/cpu/attn_tokens.cpp and
// choose_tokens of lib/ops/attn_paged_ref.cpp.
#include "tests/ops/attn_case.h"

namespace weir::test {
namespace {

struct TokenSpec {
  AttnSpec attn;
  uint32_t n_tokens = 40, n_front = 1;
  uint32_t kept_every = 0;  // > 0: every n-th page is pinned
};

// The case's scratch, with room for lists of all pages.
struct TokenCase {
  TokenCase(const TokenSpec& s, uint64_t seed) : spec(s), attn(s.attn, seed) {
    flags.assign(size_t{s.attn.kv.n_kv_heads} * attn.kv.capacity(), 0);
    for (size_t i = 0; s.kept_every != 0 && i < flags.size(); i += s.kept_every) flags[i] = kPageKept;
  }
  AttnPagedArgs args() {
    AttnPagedArgs a = attn.args();
    a.tokens = {spec.n_tokens, spec.n_front, flags.data()};
    return a;
  }
  void run(const Backend& backend) {
    OpShapes shapes = attn.shapes();
    shapes.token_pages = attn.kv.capacity();
    Machine machine(backend, shapes);
    machine.check(backend.ops.attn_paged(machine.cx(), args()));
  }
  TokenSpec spec;
  AttnCase attn;
  std::vector<uint32_t> flags;
};

TokenSpec small() {
  TokenSpec s;
  s.attn.kv = {.n_kv_heads = 2, .head_dim = 64, .n_pages = 37, .last_len = 11};
  s.attn.n_heads = 6;
  s.attn.page_mass = s.attn.lse = true;
  return s;
}

std::vector<float> all_of(TokenCase& c, const Backend& backend) {
  c.run(backend);
  std::vector<float> all = c.attn.out;
  all.insert(all.end(), c.attn.lse.begin(), c.attn.lse.end());
  for (uint32_t head = 0; head < c.spec.attn.n_heads; ++head) {
    const auto first = c.attn.mass.begin() + head * c.attn.kv.capacity();
    const uint32_t list = head / (c.spec.attn.n_heads / c.spec.attn.kv.n_kv_heads);
    all.insert(all.end(), first,
               first + (c.spec.attn.select_every > 0 ? c.attn.n_select[list] : c.spec.attn.kv.n_pages));
  }
  return all;
}

void compare(const TokenSpec& s, double max_nmse) {
  TokenCase want(s, 7);
  const std::vector<float> expected = all_of(want, reference_backend());
  for (int64_t target : targets()) {
    const TargetScope scope(target);
    TokenCase got(s, 7);
    const std::vector<float> all = all_of(got, cpu_backend());
    assert_int_equal(all.size(), expected.size());
    assert_true(difference(all.data(), expected.data(), all.size()).nmse <= max_nmse);
  }
}

void equals_the_reference(void**) {
  for (uint32_t d : {8u, 24u, 64u, 96u, 128u, 256u}) {
    for (uint32_t group : {1u, 3u, 4u, 7u}) {
      for (uint32_t n_tokens : {1u, 40u, 200u, 5000u}) {
        TokenSpec s = small();
        s.attn.kv.head_dim = d;
        s.attn.n_heads = 2 * group;
        s.n_tokens = n_tokens;
        compare(s, 1e-10);
        s.attn.select_every = 3;
        s.attn.kv.gaps = true;
        s.kept_every = 9;
        s.attn.sinks = true;
        s.attn.soft_cap = 3.0f;
        compare(s, 1e-10);
      }
    }
  }
  for (KvFormat format : {KvFormat::kQ8, KvFormat::kK8V4, KvFormat::kK4V4}) {
    for (uint32_t last_len : {1u, 11u, 16u}) {
      TokenSpec s = small();
      s.attn.kv.format = format;
      s.attn.kv.last_len = last_len;
      compare(s, 1e-10);
    }
  }
  TokenSpec windows = small();
  windows.attn.head_window = 100;
  windows.attn.head_sinks = 20;
  compare(windows, 1e-10);
  TokenSpec large = small();
  large.attn.kv.key_scale = 60.0f;
  compare(large, 1e-9);
}

// With one head it is the softmax over the exactly best tokens, in f64 and by hand.
void best_tokens_by_hand(void**) {
  TokenSpec s = small();
  s.attn.kv.n_kv_heads = 1;
  s.attn.n_heads = 1;
  s.n_tokens = 60;
  s.n_front = 2;
  TokenCase c(s, 3);
  c.run(cpu_backend());
  const AttnPagedArgs a = c.args();
  struct Token {
    double logit;
    uint32_t row, t;
    bool forced;
  };
  std::vector<Token> tokens;
  for (uint32_t row = 0; row < s.attn.kv.n_pages; ++row) {
    for (uint32_t t = 0; t < c.attn.kv.len(0, row); ++t) {
      double dot = 0.0;
      for (uint32_t i = 0; i < 64; ++i) dot += double{c.attn.q[i]} * double{bf16_to_f32(c.attn.kv.key(0, row, t)[i])};
      tokens.push_back({dot * double{a.scale}, row, t, row < 2 || row + 1 == s.attn.kv.n_pages});
    }
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Token& x, const Token& y) { return x.forced != y.forced ? x.forced : x.logit > y.logit; });
  tokens.resize(60);
  double sum = 0.0;
  std::vector<double> out(64, 0.0);
  for (const Token& t : tokens) sum += std::exp(t.logit);
  for (const Token& t : tokens) {
    for (uint32_t i = 0; i < 64; ++i)
      out[i] += std::exp(t.logit) / sum * double{bf16_to_f32(c.attn.kv.value(0, t.row, t.t)[i])};
  }
  for (uint32_t i = 0; i < 64; ++i) assert_true(std::fabs(double{c.attn.out[i]} - out[i]) < 1e-5);
  assert_true(std::fabs(double{c.attn.lse[0]} - std::log(sum)) < 1e-5);
}

// With room for all tokens it is attention over the pages, up to the order of sums; threads change no bit.
void all_tokens_and_threads(void**) {
  TokenSpec s = small();
  s.n_tokens = 100000;
  TokenCase all(s, 5);
  all.run(cpu_backend());
  AttnCase pages(s.attn, 5);
  pages.run(cpu_backend());
  assert_true(difference(all.attn.out.data(), pages.out.data(), pages.out.size()).nmse < 1e-11);
  s.n_tokens = 50;
  TokenCase two(s, 5);
  two.run(cpu_backend());
  s.attn.n_threads = 5;
  TokenCase five(s, 5);
  five.run(cpu_backend());
  assert_true(two.attn.out == five.attn.out && two.attn.mass == five.attn.mass);
}

// A key that is no number is not lost in a choice: all is attended then, as without one.
void nan_is_not_lost(void**) {
  TokenSpec s = small();
  TokenCase c(s, 5);
  c.attn.kv.key(0, 20, 3)[7] = PagedKv::kNan;
  c.run(cpu_backend());
  assert_true(std::isnan(c.attn.out[0]));
  assert_true(std::isfinite(c.attn.out[3 * 64]));
}

const CMUnitTest tests[] = {
    {"attn_tokens__equals_the_reference", equals_the_reference, nullptr, nullptr, nullptr},
    {"attn_tokens__best_tokens_by_hand", best_tokens_by_hand, nullptr, nullptr, nullptr},
    {"attn_tokens__all_tokens_and_threads", all_tokens_and_threads, nullptr, nullptr, nullptr},
    {"attn_tokens__nan_is_not_lost", nan_is_not_lost, nullptr, nullptr, nullptr},
};

}  // namespace
}  // namespace weir::test

int main() { return cmocka_run_group_tests_name("ops/attn_tokens", weir::test::tests, nullptr, nullptr); }
