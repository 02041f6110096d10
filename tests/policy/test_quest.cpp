// policy: Quest in a session (docs/algorithms.md, "Quest"). Nothing ever leaves; lists have the size of the budget,
// contain the open page, and grow with the budget; digests and bounds are those of the pages' keys; with pages of one
// token the list is the exact top.
#include "tests/policy/session_sim.h"

#include <cstring>
#include <numeric>

namespace {

using namespace weir;
using namespace weir::test;

const SimShape kShapes[] = {
    {3, 2, 4, 64, 512, true}, {3, 1, 7, 64, 24, true}, {3, 3, 3, 64, 512, true}, {3, 1, 8, 128, 48, true}};

void check_list(const Sim& sim, uint32_t layer, uint32_t head, uint32_t budget, uint32_t sink_pages) {
  const std::vector<uint32_t> list = sim.attended(layer, head);
  const uint32_t n = sim.kv.stream(layer * sim.shape.n_kv_heads + head / sim.shape.group).n_pages;
  assert_int_equal(n, whole_pages(sim.n_tokens() + 1));  // nothing has left
  assert_int_equal(list.size(), std::min(budget, n));
  assert_true(std::is_sorted(list.begin(), list.end()) && std::adjacent_find(list.begin(), list.end()) == list.end());
  assert_int_equal(list.back(), n - 1);  // the open page
  for (uint32_t row = 0; row < std::min(n, sink_pages); ++row) assert_int_equal(list[row], row);
}

void quest__lists_in_sessions(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 250, 41);
    for (const char* agg : {"sum_prob", "max_prob", "mean_raw", "max_raw", "qhead"}) {
      for (uint32_t n_prompt : kRaggedPrompts) {
        Sim sim(cpu_backend(), inputs,
                {"quest", 96, 4096, 0, {{"agg", agg}, {"skip_layers", "1"}, {"sink_pages", "1"}}});
        sim.on_layer = [&](uint32_t layer) {
          assert_int_equal(sim.selects(layer), layer != 0 && whole_pages(sim.n_tokens() + 1) > 6);
          for (uint32_t head = 0; layer != 0 && head < shape.n_heads(); ++head) check_list(sim, layer, head, 6, 1);
        };
        sim.prefill(n_prompt);
        sim.steps(120);
        assert_int_equal(sim.n_evicted, 0);
      }
    }
  }
}

// Up to dense_tokens everything is attended, whatever the budget is; the rules for devices say the same.
void quest__short_conversations_are_dense(void**) {
  const Inputs inputs(kShapes[0], 250, 43);
  Sim sim(cpu_backend(), inputs, {"quest", 96, 4096, 0, {{"dense_tokens", "167"}, {"skip_layers", "0"}}});
  uint32_t n_dense = 0, n_chosen = 0;
  sim.on_layer = [&](uint32_t layer) {
    const uint32_t n = whole_pages(sim.n_tokens() + 1);
    assert_int_equal(sim.selects(layer), n > 10);  // whole pages of 167 tokens
    (n > 10 ? n_chosen : n_dense) += 1;
    if (n > 10) check_list(sim, layer, 0, 6, 0);
  };
  sim.prefill(120);
  sim.steps(80);
  assert_true(n_dense > 0 && n_chosen > 0);

  PolicyConfig config;
  config.n_layers = 4, config.n_heads = 4, config.n_kv_heads = 2, config.head_dim = 64;
  config.context_tokens = 4096, config.budget_tokens = 96;
  for (const auto& [tokens, pages] : {std::pair{"0", 6u}, {"95", 6u}, {"167", 10u}}) {
    const weir_key_value option = {"dense_tokens", tokens};
    config.options = {&option, 1};
    PolicyStorage storage;
    Policy* policy = nullptr;
    assert_true(make_policy("quest", config, storage, policy).ok());
    assert_int_equal(policy->step_rules().select_above_pages, pages);
    policy->~Policy();
  }
}

// Sketches are estimates of what a page weighs, which sums of probabilities are for; other digests are far above it.
void quest__heads_agree_by_what_the_digest_is(void**) {
  PolicyConfig config;
  config.n_layers = 4, config.n_heads = 4, config.n_kv_heads = 2, config.head_dim = 64;
  config.context_tokens = 4096, config.budget_tokens = 96;
  const struct {
    std::vector<weir_key_value> options;
    AggMode quest, arkvale;
  } rows[] = {{{}, AggMode::kSumProb, AggMode::kSumProb},
              {{{"digest", "minmax"}}, AggMode::kMaxRaw, AggMode::kMaxZ},
              {{{"digest", "sketch"}}, AggMode::kSumProb, AggMode::kSumProb},
              {{{"digest", "sketch"}, {"agg", "max_raw"}}, AggMode::kMaxRaw, AggMode::kMaxRaw}};
  for (const auto& row : rows) {
    config.options = row.options;
    for (const char* name : {"quest", "arkvale"}) {
      PolicyStorage storage;
      Policy* policy = nullptr;
      assert_true(make_policy(name, config, storage, policy).ok());
      assert_true(policy->step_rules().agg == (std::strcmp(name, "quest") == 0 ? row.quest : row.arkvale));
      policy->~Policy();
    }
  }
}

void quest__every_digest_on_both_backends(void**) {
  const Inputs inputs({2, 2, 3, 64, 48, true}, 250, 42);
  for (const Backend* backend : kBackends) {
    for (const char* digest : {"minmax", "cuboid_mean", "sphere_mean", "centroid", "mean_std", "sketch"}) {
      Sim sim(*backend, inputs, {"quest", 80, 4096, 0, {{"digest", digest}, {"skip_layers", "0"}}});
      sim.on_layer = [&](uint32_t layer) {
        for (uint32_t head = 0; head < 6; ++head) check_list(sim, layer, head, 5, 0);
      };
      sim.prefill(100);
      sim.steps(60);
      for (float x : sim.out[1]) assert_false(std::isnan(x));
    }
  }
}

// The same queries and keys with a larger budget: every list holds the smaller one's.
void quest__lists_grow_with_the_budget(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 300, 43);
  for (const char* agg : {"sum_prob", "qhead"}) {
    std::vector<std::vector<uint32_t>> before;
    for (uint32_t budget : {32u, 48u, 96u, 160u, 288u}) {
      std::vector<std::vector<uint32_t>> lists;
      Sim sim(cpu_backend(), inputs, {"quest", budget, 4096, 0, {{"agg", agg}, {"skip_layers", "0"}}});
      sim.on_layer = [&](uint32_t layer) {
        for (uint32_t head = 0; head < 8; ++head) lists.push_back(sim.attended(layer, head));
      };
      sim.prefill(200);
      sim.steps(60);
      for (size_t i = 0; i < before.size(); ++i)
        assert_true(std::includes(lists[i].begin(), lists[i].end(), before[i].begin(), before[i].end()));
      before = lists;
    }
  }
}

// The bound of every page, also of the open one, is at least every q.k; digests that were updated key by key equal
// those of the whole page.
void quest__minmax_bounds_hold(void**) {
  const SimShape shape = {2, 2, 3, 64, 24, true};
  const Inputs inputs(shape, 150, 44);
  for (const Backend* backend : kBackends) {
    Sim sim(*backend, inputs, {"quest", 64, 4096, 0, {{"digest", "minmax"}, {"skip_layers", "0"}}});
    sim.prefill(33);
    for (uint32_t i = 0; i < 40; ++i) {
      sim.step();
      for (uint32_t layer = 0; layer < 2; ++layer) {
        const KvView view = sim.kv.view(layer);
        std::vector<float> score(size_t{6} * view.capacity);
        OpContext cx;
        assert_true(ref::page_score(cx, {score.data(), sim.q(layer).data(), view, 6, 1.0f, 0.125f}).ok());
        for (uint32_t head = 0; head < 6; ++head) {
          for (uint32_t row = 0; row < view.n_pages[head / 3]; ++row) {
            const uint32_t len = view.len[size_t{head / 3} * view.capacity + row];
            std::vector<uint16_t> want(128);
            digest_page(DigestKind::kMinMax, view.keys_of(head / 3, row), len, want.data());
            assert_memory_equal(want.data(), view.digest_of(head / 3, row), want.size() * sizeof(uint16_t));
            for (uint32_t j = 0; j < len; ++j) {
              double dot = 0.0;
              for (size_t e = 0; e < 64; ++e) {
                dot += double{sim.q(layer)[head * 64 + e]} * double{load_element(view.keys_of(head / 3, row), j, e)};
              }
              assert_true(double{score[size_t{head} * view.capacity + row]} >= dot - 1e-4);
            }
          }
        }
      }
    }
  }
}

// Pages of one key: the bound is q.k itself, and the list has the top sealed tokens exactly, and the current token.
void quest__pages_of_one_token_are_the_exact_top(void**) {
  constexpr uint32_t n = 200, d = 64, budget = 40;
  for (const Backend* backend : kBackends) {
    Numbers numbers(45);
    std::vector<uint16_t> pool(size_t{n} * 2 * kPageTokens * d, 0x7FC0), digests(size_t{n} * 2 * d);
    std::vector<uint32_t> slots(n), len(n, 1), first_pos(n), flags(n), select(n);
    std::vector<float> q(d), score(n), group_score(n);
    std::iota(slots.begin(), slots.end(), 0u);
    std::iota(first_pos.begin(), first_pos.end(), 0u);
    for (float& x : q) x = numbers.normal();
    KvView view;
    view.pool = pool.data();
    view.digests = digests.data();
    view.digest = DigestKind::kMinMax;
    view.slots = slots.data();
    view.first_pos = first_pos.data();
    view.len = len.data();
    view.n_pages = &n;
    view.capacity = n;
    view.n_kv_heads = 1;
    view.head_dim = d;
    std::vector<double> dot(n);
    for (uint32_t t = 0; t < n; ++t) {
      uint16_t* key = &pool[t * view.page_elements()];
      for (uint32_t i = 0; i < d; ++i)
        dot[t] += double{q[i]} * double{bf16_to_f32(key[i] = f32_to_bf16(numbers.normal()))};
      digest_page(DigestKind::kMinMax, key, 1, d, view.digest_of(0, t));
    }
    ThreadPool threads(std::pmr::new_delete_resource());
    std::vector<std::max_align_t> scratch(1 << 14);
    OpContext cx;
    cx.pool = &threads;
    cx.scratch = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    cx.scratch_bytes = (scratch.size() - 8) * sizeof(std::max_align_t);
    assert_true(backend->ops.page_score(cx, {score.data(), q.data(), view, 1, 1.0f, 0.125f}).ok());
    uint32_t n_select = 0;
    PageSelectArgs a = {};
    a.score = score.data();
    a.group_score = group_score.data();
    a.select = select.data();
    a.n_select = &n_select;
    a.flags = flags.data();
    a.n_pages = &n;
    a.capacity = n;
    a.n_heads = a.n_kv_heads = 1;
    a.scale = 0.125f;
    a.budget = budget;
    assert_true(backend->ops.page_select(cx, a).ok());
    std::vector<uint32_t> want(n - 1);
    std::iota(want.begin(), want.end(), 0u);
    std::sort(want.begin(), want.end(), [&](uint32_t x, uint32_t y) { return dot[x] > dot[y]; });
    want.resize(budget - 1);
    want.push_back(n - 1);
    std::sort(want.begin(), want.end());
    assert_int_equal(n_select, budget);
    assert_true(std::vector<uint32_t>(select.begin(), select.begin() + budget) == want);
  }
}

// A page whose keys match the query is in the list whatever its age.
void quest__a_planted_page_is_found(void**) {
  const SimShape shape = {1, 2, 4, 64, 512, false};
  Inputs inputs(shape, 600, 46);
  for (uint32_t i = 0; i < 600 * 2u; ++i) {
    const uint32_t pos = i / 2;
    for (uint32_t e = 0; pos / kPageTokens == 4 && e < 8; ++e)
      inputs.k(0, 0)[i * 64 + e] += 3.0f;  // keys of page 4 point along eight channels
  }
  for (uint32_t pos = 500; pos < 600; ++pos) {
    for (uint32_t head = 0; head < 8; ++head) {
      for (uint32_t e = 0; e < 8; ++e) inputs.q(0, pos)[head * 64 + e] += 3.0f;  // and late queries point there
    }
  }
  for (const char* digest : {"minmax", "cuboid_mean", "sphere_mean", "centroid", "mean_std", "sketch"}) {
    Sim sim(cpu_backend(), inputs, {"quest", 64, 4096, 0, {{"digest", digest}}});
    sim.on_layer = [&](uint32_t) {
      if (sim.n_tokens() < 500) return;
      for (uint32_t head : {0u, 4u}) {
        const std::vector<uint32_t> list = sim.attended(0, head);
        assert_true(std::count(list.begin(), list.end(), 4u) == 1);
      }
    };
    sim.prefill(400);
    sim.steps(150);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(quest__lists_in_sessions),
      cmocka_unit_test(quest__short_conversations_are_dense),
      cmocka_unit_test(quest__heads_agree_by_what_the_digest_is),
      cmocka_unit_test(quest__every_digest_on_both_backends),
      cmocka_unit_test(quest__lists_grow_with_the_budget),
      cmocka_unit_test(quest__minmax_bounds_hold),
      cmocka_unit_test(quest__pages_of_one_token_are_the_exact_top),
      cmocka_unit_test(quest__a_planted_page_is_found),
  };
  return cmocka_run_group_tests_name("policy_quest", tests, nullptr, nullptr);
}
