// policy: configurations that must be the same as another method (docs/algorithms.md, "What must equal what"), on the
// simulator of a session: a budget that holds everything is dense attention to the last bit, and edge values of
// options are simpler methods.
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

// Every policy with a budget of 16 pages or more for at most 140 tokens, and once with a context that the budget holds.
const PolicySpec kFull[] = {
    {"sink", 256, 1024, 0, {{"positions", "abs"}}},
    {"sink", 256, 1024, 0, {{"positions", "incache"}}},
    {"sink", 256, 1024, 0, {{"exact_mask", "true"}}},
    {"h2o", 256, 1024, 0, {{"skip_layers", "0"}}},
    {"h2o", 256, 1024, 0, {{"skip_layers", "1"}, {"init", "window"}, {"score", "norm_sum"}}},
    {"h2o", 256, 256, 0, {}},
    {"tova", 256, 1024, 0, {{"skip_layers", "0"}}},
    {"tova", 256, 1024, 0, {{"skip_layers", "0"}, {"scope", "stream"}}},
    {"tova", 256, 1024, 0, {{"skip_layers", "0"}, {"decide", "token"}}},
    {"quest", 160, 1024, 0, {{"skip_layers", "0"}}},
    {"quest", 160, 1024, 0, {{"skip_layers", "0"}, {"digest", "minmax"}, {"agg", "qhead"}}},
    {"quest", 160, 160, 0, {}},
    {"raas", 256, 1024, 0, {}},
    {"raas", 256, 1024, 0, {{"stamp_source", "digest"}, {"rank_scope", "all"}}},
    {"raas", 256, 1024, 0, {{"stamp_rule", "alpha"}, {"pin_prompt", "false"}}},
    {"raas", 256, 1024, 128, {{"overflow", "extend"}}},
    {"raas", 256, 1024, 128, {{"overflow", "hybrid"}, {"skip_layers", "0"}}},
    {"raas", 256, 256, 0, {}},
    {"hybrid", 512, 1024, 512, {{"skip_layers", "0"}}},
    {"hybrid", 512, 1024, 0, {{"stamp_source", "digest"}, {"skip_layers", "0"}}},
    {"hybrid", 160, 160, 0, {}},
    {"random", 256, 1024, 0, {}},
    {"random", 256, 1024, 0, {{"pin_prompt", "false"}, {"seed", "7"}}},
    {"random", 256, 1024, 128, {{"overflow", "extend"}}},
    {"random", 256, 256, 0, {}},
    {"keyformer", 256, 1024, 0, {{"skip_layers", "0"}}},
    {"keyformer", 256, 256, 0, {}},
    {"scissorhands", 256, 1024, 0, {{"skip_layers", "0"}}},
    {"scissorhands", 256, 256, 0, {{"drop", "1"}}},
    {"arkvale", 256, 1024, 0, {}},
    {"arkvale", 256, 1024, 0, {{"attend", "top"}, {"recall_pages", "0"}, {"digest", "minmax"}}},
    {"arkvale", 256, 1024, 0, {{"recall_from", "1"}, {"protect_recent", "0"}}},
    {"arkvale", 256, 256, 0, {{"attend", "top"}}},
    {"psa", 0, 1024, 0, {{"eps", "1"}, {"skip_layers", "0"}}},
    {"psa", 160, 1024, 0, {{"eps", "1"}, {"skip_layers", "0"}}},
    {"psa", 256, 1024, 0, {{"mb", "16"}, {"skip_layers", "0"}}},
    {"psa", 0, 160, 0, {{"mb", "10"}, {"bound", "true"}}},
    {"raas", 256, 1024, 0, {{"recall", "on"}}},
    {"raas", 256, 256, 0, {{"recall", "on"}}},
    {"hybrid", 256, 1024, 0, {{"recall", "on"}}},
    {"hybrid", 256, 1024, 0, {{"recall", "on"}, {"rho", "0.2"}, {"recall_from", "3"}}},
    {"dense", 0, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "112"}}},
    {"raas", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "112"}}},
    {"dense", 0, 1024, 0, {{"prompt", "pyramid"}, {"prompt_budget", "128"}, {"prompt_beta", "1.1"}}},
    {"raas", 256, 1024, 0, {{"prompt", "ada"}, {"prompt_budget", "112"}}},
    {"raas", 256, 1024, 0, {{"prompt", "pyramid"}, {"prompt_budget", "160"}, {"prompt_beta", "1.2"}}},
    {"h2o", 256, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "112"}}},
};

void compare_with_dense(const Backend& backend, const SimShape& shape, std::initializer_list<uint32_t> prompts) {
  const Inputs inputs(shape, 140, 7);
  for (uint32_t n_prompt : prompts) {
    Sim dense(backend, inputs, {"dense", 0, 1024, 0, {}});
    dense.prefill(n_prompt);
    dense.steps(34);
    for (const PolicySpec& spec : kFull) {
      Sim sim(backend, inputs, spec);
      sim.prefill(n_prompt);
      sim.steps(34);
      assert_int_equal(sim.n_evicted, 0);
      assert_same_outputs(sim, dense, spec.name);
    }
  }
}

void degenerate__full_budget_is_dense_on_the_reference(void**) {
  // lfps sums in another order: tests/policy/test_lfps.cpp
  ASSERT_EVERY_POLICY_EXCEPT("lfps", kFull, name);
  compare_with_dense(reference_backend(), {3, 2, 3, 64, 512, true}, {17, 100});
}

void degenerate__full_budget_is_dense_on_the_cpu(void**) {
  compare_with_dense(cpu_backend(), {3, 1, 1, 64, 512, true}, {1, 15, 16, 17, 31, 33, 100});
  compare_with_dense(cpu_backend(), {3, 2, 4, 128, 512, true}, {1, 16, 31, 100});
  compare_with_dense(cpu_backend(), {3, 3, 3, 64, 24, true}, {15, 33, 100});  // several chunks
  compare_with_dense(cpu_backend(), {3, 1, 7, 64, 512, true}, {17, 100});
  compare_with_dense(cpu_backend(), {3, 1, 8, 128, 512, true}, {32, 100});
}

// The comparison above can fail: a budget one page too small differs.
void degenerate__a_budget_below_the_length_is_not_dense(void**) {
  const Inputs inputs({}, 180, 7);
  Sim dense(cpu_backend(), inputs, {"dense", 0, 1024, 0, {}});
  dense.prefill(33);
  dense.steps(140);
  for (const char* name : every_policy) {
    if (std::strcmp(name, "dense") == 0) continue;
    Sim sim(cpu_backend(), inputs, {name, 160, 1024, 0, {}});
    sim.prefill(33);
    sim.steps(140);
    if (sim.policy().step_rules().victim != VictimRule::kNever && sim.n_evicted == 0)
      fail_msg("%s: no page left", name);
    if (sim.out[2] == dense.out[2]) fail_msg("%s: the outputs of dense", name);
  }
}

// Compares both sessions of a pair at every step, from the end of the prompt on.
void compare_tables(const Backend& backend, const Inputs& inputs, const PolicySpec& one, const PolicySpec& two,
                    uint32_t n_prompt, uint32_t n_steps) {
  Sim a(backend, inputs, one), b(backend, inputs, two);
  a.prefill(n_prompt);
  b.prefill(n_prompt);
  for (uint32_t i = 0; i < n_steps; ++i) {
    assert_true(a.all_pages() == b.all_pages());
    a.step();
    b.step();
  }
  assert_true(a.n_evicted > 0);
  assert_same_outputs(a, b, one.name);
}

// r = 0 stamps nothing: the decoded pages are a queue behind the pinned prompt.
void degenerate__raas_without_stamps_is_a_queue(void**) {
  for (const Backend* backend : kBackends) {
    const Inputs inputs({3, 2, 3, 64, 512, true}, 400, 11);
    for (uint32_t n_prompt : {1u, 15u, 16u, 17u, 33u, 100u}) {
      if (backend == &reference_backend() && n_prompt != 33) continue;
      Sim sim(*backend, inputs, {"raas", 192, 4096, 0, {{"r", "0"}}});
      sim.prefill(n_prompt);
      for (uint32_t i = 0; i < 250; ++i) {
        sim.step();
        const uint32_t n_prompt_pages = whole_pages(n_prompt), n = whole_pages(sim.n_tokens());
        std::vector<uint32_t> want;
        for (uint32_t page = 0; page < n; ++page) {
          if (page < n_prompt_pages || page + (12 - n_prompt_pages) >= n) want.push_back(page * kPageTokens);
        }
        for (const auto& pages : sim.all_pages()) assert_true(pages == want);
      }
    }
  }
}

void degenerate__raas_alpha_of_one_is_top_r_of_none(void**) {
  for (uint32_t n_prompt : {1u, 33u}) {
    const Inputs inputs({3, 1, 4, 128, 512, true}, 300, 12);
    for (const char* source : {"digest", "exact_mass"}) {
      compare_tables(cpu_backend(), inputs,
                     {"raas", 128, 4096, 0, {{"stamp_rule", "alpha"}, {"alpha", "1"}, {"stamp_source", source}}},
                     {"raas", 128, 4096, 0, {{"r", "0"}, {"stamp_source", source}}}, n_prompt, 240);
    }
  }
}

// r = 1 and alpha = 0 stamp everything: the page with the least weight in the latest step leaves.
void degenerate__raas_that_stamps_all_drops_the_lightest(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 300, 13);
  for (bool alpha : {false, true}) {
    PolicySpec spec = {"raas", 160, 4096, 0, {{"protect_recent", "0"}}};
    spec.options.push_back(alpha ? weir_key_value{"stamp_rule", "alpha"} : weir_key_value{"r", "1"});
    if (alpha) spec.options.push_back({"alpha", "0"});
    Sim sim(cpu_backend(), inputs, spec);
    sim.on_evict = [&](uint32_t stream, const StreamView& s, uint32_t victim, const RoomArgs&) {
      const uint32_t layer = stream / 2, kv_head = stream % 2;
      std::vector<double> weight(s.n_pages);
      for (uint32_t row = 0; row < s.n_pages; ++row) {
        for (uint32_t g = 0; g < 4; ++g) {
          const double mass = sim.mass(layer)[(kv_head * 4 + g) * size_t{s.capacity} + row];
          weight[row] = alpha ? std::max(weight[row], mass) : weight[row] + mass;
        }
      }
      for (uint32_t row = 3; row + 1 < s.n_pages; ++row) assert_true(weight[victim] <= weight[row] * 1.00001);
    };
    sim.prefill(40);
    sim.steps(240);
    assert_true(sim.n_evicted > 0);
  }
}

// With a prompt that hybrid attends whole it equals raas with the same budget. What such a prompt does not need of its
// half goes to the answer.
void degenerate__hybrid_with_a_short_prompt_is_raas(void**) {
  for (const Backend* backend : kBackends) {
    const Inputs inputs({3, 2, 3, 64, 512, true}, 480, 14);
    for (uint32_t n_prompt : {1u, 16u, 17u, 100u}) {
      if (backend == &reference_backend() && n_prompt != 17) continue;
      for (const char* share : {"0", "0.5"}) {
        // 20 pages: up to 10 of the prompt, the rest decoded.
        compare_tables(*backend, inputs, {"hybrid", 320, 4096, 160, {{"protect_share", share}, {"skip_layers", "0"}}},
                       {"raas", 320, 4096, 0, {{"protect_share", share}, {"overflow", "error"}}}, n_prompt, 360);
      }
    }
  }
}

// While no page has left, positions in the cache are the original ones. Once a page has left, they are not.
void degenerate__sink_positions_agree_while_everything_fits(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 200, 15);
  Sim abs(cpu_backend(), inputs, {"sink", 160, 1024, 0, {{"positions", "abs"}}});
  Sim in_cache(cpu_backend(), inputs, {"sink", 160, 1024, 0, {{"positions", "incache"}}});
  for (Sim* sim : {&abs, &in_cache}) {
    sim->prefill(50);
    sim->steps(110);
  }
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (size_t i = 0; i < abs.out[layer].size(); ++i)
      assert_true(std::fabs(abs.out[layer][i] - in_cache.out[layer][i]) <= 1e-4f);
  }
  abs.steps(30);
  in_cache.steps(30);
  assert_true(abs.all_pages() == in_cache.all_pages());
  assert_true(abs.out[0] != in_cache.out[0]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(degenerate__full_budget_is_dense_on_the_reference),
      cmocka_unit_test(degenerate__full_budget_is_dense_on_the_cpu),
      cmocka_unit_test(degenerate__a_budget_below_the_length_is_not_dense),
      cmocka_unit_test(degenerate__raas_without_stamps_is_a_queue),
      cmocka_unit_test(degenerate__raas_alpha_of_one_is_top_r_of_none),
      cmocka_unit_test(degenerate__raas_that_stamps_all_drops_the_lightest),
      cmocka_unit_test(degenerate__hybrid_with_a_short_prompt_is_raas),
      cmocka_unit_test(degenerate__sink_positions_agree_while_everything_fits),
  };
  return cmocka_run_group_tests_name("policy_degenerate", tests, nullptr, nullptr);
}
