// policy: pages of one token against the token forms of the methods (token_reference.h), over random weights: the same
// tokens are resident after every step. A row of the table is one token here. The policy decides which row leaves and
// what it observes; neither depends on the size of a page.
#include "tests/policy/token_reference.h"

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

// A stream of one-token pages under a policy, with the backend's ops. The tables are those of a cache, whose pages are
// never read.
class OneTokenPages {
 public:
  OneTokenPages(const Backend& backend, const char* name, uint32_t capacity, uint32_t group,
                std::initializer_list<weir_key_value> options)
      : backend_(backend), made_(name, capacity * kPageTokens, 1u << 20, options), group_(group) {
    if (!made_.status.ok()) fail_msg("%s: %s", name, last_error_text());
    assert_int_equal(made_.policy->needs().pages_per_stream, capacity);
    assert_true(made_.policy->needs().page_mass);
    assert_true(pool_.start(1).ok());
    OpShapes shapes;
    shapes.n_heads = group;
    shapes.n_kv_heads = 1;
    shapes.head_dim = 64;
    shapes.max_cols = shapes.max_rows = 64;
    shapes.max_pages = capacity;
    scratch_.resize(backend.scratch_bytes(shapes) / sizeof(Line) + 1);
    cx_.pool = &pool_;
    cx_.scratch = scratch_[0].bytes;
    cx_.scratch_bytes = backend.scratch_bytes(shapes);
    const KvShape shape = {1, 1, 8, capacity, DigestKind::kNone, 0, 0, false};
    Arena measured[3], arenas[3];
    kv_.lay_out(shape, measured[0], measured[1], measured[2]);
    for (int i = 0; i < 3; ++i) {
      memory_[i].resize(measured[i].used() / sizeof(Line) + 1);
      arenas[i] = Arena(memory_[i][0].bytes, measured[i].used());
    }
    kv_.lay_out(shape, arenas[0], arenas[1], arenas[2]);
    kv_.reset();
  }

  // Makes room for the token by the policy when there is none, and appends it.
  void append(uint32_t pos, uint32_t now, uint32_t flags = 0) {
    const StreamView s = table();
    const uint32_t row = made_.policy->victim(s, room(pos, s.n_pages == s.capacity));
    assert_true((row != Policy::kNone) == (s.n_pages == s.capacity));
    if (row != Policy::kNone) remove(s, row);
    const uint32_t n = kv_.n_pages_of(0)[0]++;
    s.first_pos[n] = pos;
    s.len[n] = 1;
    s.flags[n] = flags;
    s.stamp[n] = now;
    s.last_score[n] = 0.0f;
  }
  // What the policy observes in a step: the weights of every head.
  void observe(const HeadWeights& w, uint32_t now) {
    const StreamView s = table();
    std::vector<float> mass(size_t{group_} * s.capacity, NAN);
    for (size_t g = 0; g < w.size(); ++g)
      std::copy(w[g].begin(), w[g].end(), mass.begin() + static_cast<ptrdiff_t>(g * s.capacity));
    assert_true(
        made_.policy->observe(cx_, backend_.ops, kv_, {0, group_, nullptr, mass.data(), nullptr, {}, now}).ok());
  }
  StreamView table() const { return kv_.stream(0); }
  std::vector<uint32_t> positions() const { return {table().first_pos, table().first_pos + table().n_pages}; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  void remove(const StreamView& s, uint32_t row) {
    for (uint32_t* column : {s.first_pos, s.len, s.flags, s.stamp})
      std::copy(column + row + 1, column + s.n_pages, column + row);
    std::copy(s.last_score + row + 1, s.last_score + s.n_pages, s.last_score + row);
    --kv_.n_pages_of(0)[0];
  }

  const Backend& backend_;
  Made made_;
  uint32_t group_;
  ThreadPool pool_{std::pmr::new_delete_resource()};
  OpContext cx_;
  KvCache kv_;
  std::vector<Line> scratch_, memory_[3];
};

// Softmax weights of every head over n residents, now and then peaked. Multiples of 2^-12, so that sums over heads and
// steps are exact in f32 as in f64, and ties happen.
HeadWeights random_weights(Numbers& numbers, uint32_t group, size_t n) {
  HeadWeights w(group, std::vector<float>(n));
  for (auto& head : w) {
    const float sharp = numbers.below(3) == 0 ? 4.0f : 1.0f;
    float sum = 0.0f;
    for (float& x : head) sum += x = std::exp(sharp * numbers.normal());
    for (float& x : head) x = std::round(x / sum * 0x1p12f) * 0x1p-12f;
  }
  return w;
}

struct Case {
  const Backend* backend;
  uint32_t group;
  uint64_t seed;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Backend* backend : kBackends) {
    for (uint32_t group : {1u, 3u, 4u, 7u, 8u}) {
      for (uint64_t seed = 1; seed <= 4; ++seed) list.push_back({backend, group, seed});
    }
  }
  return list;
}

constexpr uint32_t kSteps = 300;

// The page form makes room before it opens a page, the token form after attention. So heavy + recent tokens between
// steps correspond to a table with one row more.
void token__h2o_keeps_what_the_token_form_keeps(void**) {
  const struct {
    uint32_t heavy, recent;
    const char* text;
  } splits[] = {{10, 10, "10"}, {19, 1, "1"}, {4, 16, "16"}};
  for (const Case& c : cases()) {
    for (const auto& split : splits) {
      Numbers numbers(c.seed);
      TokenH2o want(split.heavy, split.recent);
      OneTokenPages got(*c.backend, "h2o", split.heavy + split.recent + 1, c.group, {{"recent", split.text}});
      for (uint32_t pos = 0; pos < kSteps; ++pos) {
        want.append(pos);
        got.append(pos, pos + 1);
        assert_true(got.positions() == want.position);
        const HeadWeights w = random_weights(numbers, c.group, want.position.size());
        want.attend(w);
        got.observe(w, pos + 1);
        for (size_t i = 0; i < want.sum.size(); ++i) assert_true(double{got.table().last_score[i]} == want.sum[i]);
        want.end_step();
      }
      assert_int_equal(want.position.size(), split.heavy + split.recent);
    }
  }
}

// Without room for heavy hitters only the window remains.
void token__h2o_without_heavy_is_a_window(void**) {
  for (const Case& c : cases()) {
    Numbers numbers(c.seed);
    OneTokenPages got(*c.backend, "h2o", 13, c.group, {{"recent", "12"}});
    for (uint32_t pos = 0; pos < kSteps; ++pos) {
      got.append(pos, pos + 1);
      const std::vector<uint32_t> resident = got.positions();
      assert_int_equal(resident.size(), std::min(pos + 1, 13u));  // twelve, and the current one
      assert_int_equal(resident.front() + resident.size(), pos + 1);
      got.observe(random_weights(numbers, c.group, resident.size()), pos + 1);
    }
  }
}

// With one token per page, decide=page and decide=token are the same.
void token__tova_keeps_what_the_token_form_keeps(void**) {
  for (const Case& c : cases()) {
    for (const auto& [scope, decide] :
         {std::pair{"stream", "page"}, {"layer", "page"}, {"stream", "token"}, {"layer", "token"}}) {
      Numbers numbers(c.seed);
      TokenTova want(20);
      OneTokenPages got(*c.backend, "tova", 21, c.group, {{"scope", scope}, {"decide", decide}});
      for (uint32_t pos = 0; pos < kSteps; ++pos) {
        want.append(pos);
        got.append(pos, pos + 1);
        assert_true(got.positions() == want.position);
        const HeadWeights w = random_weights(numbers, c.group, want.position.size());
        want.attend(w);
        got.observe(w, pos + 1);
        want.end_step();
        assert_int_equal(want.position.size(), std::min(pos + 1, 20u));
      }
    }
  }
}

void compare_raas(const Case& c, const TokenRaasRule& rule, uint32_t n_prompt,
                  std::initializer_list<weir_key_value> options) {
  Numbers numbers(c.seed);
  TokenRaas want(20, rule);
  OneTokenPages got(*c.backend, "raas", 20, c.group, options);
  want.prompt(n_prompt);
  for (uint32_t i = 0; i < n_prompt; ++i) got.append(i, n_prompt, kPagePrompt | kPagePinned);
  for (uint32_t pos = n_prompt; pos < kSteps; ++pos) {
    want.append(pos, pos + 1);
    got.append(pos, pos + 1);
    assert_true(got.positions() == want.positions());
    const HeadWeights w = random_weights(numbers, c.group, want.tokens.size());
    want.attend(w, pos + 1);
    got.observe(w, pos + 1);
    for (size_t i = 0; i < want.tokens.size(); ++i) assert_int_equal(got.table().stamp[i], want.tokens[i].stamp);
  }
}

void token__raas_keeps_what_the_token_form_keeps(void**) {
  for (const Case& c : cases()) {
    for (uint32_t n_prompt : {0u, 1u, 7u}) {
      compare_raas(c, {false, 0.0f, 0.5f, false}, n_prompt, {{"protect_recent", "0"}, {"stamp_rule", "top_r"}});
      compare_raas(c, {false, 0.0f, 0.25f, true}, n_prompt,
                   {{"protect_recent", "0"}, {"r", "0.25"}, {"rank_scope", "all"}});
      compare_raas(c, {false, 0.0f, 0.0f, false}, n_prompt, {{"protect_recent", "0"}, {"r", "0"}});
      compare_raas(c, {false, 0.0f, 1.0f, false}, n_prompt, {{"protect_recent", "0"}, {"r", "1"}});
      compare_raas(c, {true, 0.02f, 0.0f, false}, n_prompt,
                   {{"protect_recent", "0"}, {"stamp_rule", "alpha"}, {"alpha", "0.02"}});
      compare_raas(c, {true, 0.1f, 0.0f, false}, n_prompt,
                   {{"protect_recent", "0"}, {"stamp_rule", "alpha"}, {"alpha", "0.1"}});
    }
  }
}

// The example of docs/algorithms.md, "RaaS", of the token form itself.
void token__raas_trace(void**) {
  const struct {
    std::vector<uint32_t> residents;
    std::vector<float> weights;
    std::vector<uint32_t> stamps;
  } steps[] = {{{1}, {1.0f}, {1}},
               {{1, 2}, {.7f, .3f}, {2, 2}},
               {{1, 2, 3}, {.5f, .2f, .3f}, {3, 3, 3}},
               {{1, 2, 3, 4}, {.4f, .05f, .25f, .3f}, {4, 3, 4, 4}},
               {{1, 2, 3, 4, 5}, {.3f, .2f, .05f, .15f, .3f}, {5, 5, 4, 5, 5}},
               {{1, 2, 4, 5, 6}, {.3f, .05f, .25f, .10f, .3f}, {6, 5, 6, 5, 6}},
               {{1, 4, 5, 6, 7}, {.35f, .05f, .2f, .1f, .3f}, {7, 6, 7, 6, 7}},
               {{1, 5, 6, 7, 8}, {}, {}}};
  TokenRaas raas(5, {true, 0.1f, 0.0f, false});
  for (uint32_t now = 1; now <= 8; ++now) {
    raas.append(now, now);
    assert_true(raas.positions() == steps[now - 1].residents);
    if (steps[now - 1].weights.empty()) break;
    raas.attend({steps[now - 1].weights}, now);
    for (size_t i = 0; i < raas.tokens.size(); ++i) assert_int_equal(raas.tokens[i].stamp, steps[now - 1].stamps[i]);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(token__h2o_keeps_what_the_token_form_keeps),
      cmocka_unit_test(token__h2o_without_heavy_is_a_window),
      cmocka_unit_test(token__tova_keeps_what_the_token_form_keeps),
      cmocka_unit_test(token__raas_keeps_what_the_token_form_keeps),
      cmocka_unit_test(token__raas_trace),
  };
  return cmocka_run_group_tests_name("policy_token_reference", tests, nullptr, nullptr);
}
