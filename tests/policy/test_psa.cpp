// policy: PSA in a session (docs/algorithms.md, "PSA"). Nothing ever leaves; lists contain the open page, grow with eps
// and keep to the cap; without stopping it is Quest; with bounds each head has seen more than eps. When it stops is
// tested with the operation (tests/ops/test_attn_progressive.cpp).
#include <cstdlib>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

const SimShape kShapes[] = {{3, 2, 4, 64, 512, true}, {3, 1, 7, 64, 24, true}, {3, 3, 3, 128, 48, true}};

using Lists = std::vector<std::vector<uint32_t>>;

// The lists of each step, layer and KV head.
Lists lists_of(const Backend& backend, const Inputs& inputs, const PolicySpec& spec, uint32_t n_prompt,
               uint32_t n_steps) {
  Lists lists;
  Sim sim(backend, inputs, spec);
  sim.on_layer = [&](uint32_t layer) {
    for (uint32_t head = 0; head < sim.shape.n_heads(); head += sim.shape.group) {
      lists.push_back(sim.attended(layer, head));
      const std::vector<uint32_t>& list = lists.back();
      const uint32_t n = whole_pages(sim.n_tokens() + 1);
      assert_int_equal(sim.kv.stream(layer * sim.shape.n_kv_heads + head / sim.shape.group).n_pages, n);
      assert_true(std::is_sorted(list.begin(), list.end()));
      assert_true(std::adjacent_find(list.begin(), list.end()) == list.end());
      assert_int_equal(list.back(), n - 1);
    }
  };
  sim.prefill(n_prompt);
  sim.steps(n_steps);
  assert_int_equal(sim.n_evicted, 0);
  for (float x : sim.out[sim.shape.n_layers - 1]) assert_false(std::isnan(x));
  return lists;
}

void psa__lists_in_sessions(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 250, 51);
    for (uint32_t n_prompt : kRaggedPrompts) {
      Lists before;
      for (const char* eps : {"0", "0.5", "0.8", "0.98", "1"}) {
        const Lists lists =
            lists_of(cpu_backend(), inputs, {"psa", 0, 4096, 0, {{"eps", eps}, {"mb", "2"}, {"skip_layers", "1"}}},
                     n_prompt, 120);
        for (size_t i = 0; i < before.size(); ++i)
          assert_true(std::includes(lists[i].begin(), lists[i].end(), before[i].begin(), before[i].end()));
        before = lists;
      }
    }
  }
}

// Layers that stay dense attend all, as does a table of one microbatch; eps of 0 attends one microbatch, which has a
// full page that competes. A cap is reached and never passed.
void psa__sizes_of_lists(void**) {
  const Inputs inputs(kShapes[0], 250, 52);
  Sim sim(cpu_backend(), inputs, {"psa", 0, 4096, 0, {{"eps", "0"}, {"mb", "4"}, {"skip_layers", "1"}}});
  sim.on_layer = [&](uint32_t layer) {
    const uint32_t n = whole_pages(sim.n_tokens() + 1);
    assert_int_equal(sim.selects(layer), layer != 0 && n > 4);
    for (uint32_t head = 0; layer != 0 && head < 8; ++head)
      assert_int_equal(sim.attended(layer, head).size(), std::min(n, 4u));
  };
  sim.prefill(33);
  sim.steps(120);
  const Lists capped =
      lists_of(cpu_backend(), inputs, {"psa", 0, 4096, 0, {{"eps", "0.98"}, {"max_pages", "6"}, {"mb", "4"}}}, 150, 60);
  size_t most = 0;
  for (size_t i = 0; i < capped.size(); ++i) {
    if (i % 6 >= 4) most = std::max(most, capped[i].size());  // the layer behind those that stay dense
  }
  assert_int_equal(most, 6);
}

// Without stopping it is Quest with that budget, to the last bit, and a list that stops is part of Quest's.
void psa__without_stopping_is_quest(void**) {
  for (const Backend* backend : kBackends) {
    const Inputs inputs({2, 2, 3, 64, 48, true}, 250, 53);
    for (const char* digest : {"minmax", "cuboid_mean", "mean_std", "sketch"}) {
      for (const char* agg : {"max_raw", "max_z", "sum_prob"}) {
        if (backend == &reference_backend() && std::strcmp(agg, "max_z") != 0) continue;
        const std::vector<weir_key_value> common = {{"digest", digest}, {"agg", agg}, {"skip_layers", "0"}};
        Sim quest(*backend, inputs, {"quest", 96, 4096, 0, common});
        PolicySpec spec = {"psa", 96, 4096, 0, common};
        spec.options.push_back({"eps", "1"});
        Sim psa(*backend, inputs, spec);
        for (Sim* sim : {&quest, &psa}) {
          sim->prefill(100);
          sim->steps(60);
        }
        assert_same_outputs(psa, quest, agg);
        spec.options.back().value = "0.6";
        spec.options.push_back({"mb", "2"});
        const Lists part = lists_of(*backend, inputs, spec, 100, 60);
        const Lists all = lists_of(*backend, inputs, {"quest", 96, 4096, 0, common}, 100, 60);
        for (size_t i = 0; i < part.size(); ++i)
          assert_true(std::includes(all[i].begin(), all[i].end(), part[i].begin(), part[i].end()));
      }
    }
  }
}

// Both backends stop alike. The keys are random: few sums are near the threshold.
void psa__backends_agree(void**) {
  const Inputs inputs({2, 2, 3, 64, 48, true}, 200, 54);
  for (const char* bound : {"false", "true"}) {
    const PolicySpec spec = {"psa", 0, 4096, 0, {{"eps", "0.7"}, {"mb", "1"}, {"skip_layers", "0"}, {"bound", bound}}};
    const Lists cpu = lists_of(cpu_backend(), inputs, spec, 100, 40);
    assert_true(cpu == lists_of(reference_backend(), inputs, spec, 100, 40));
  }
}

// By bounds the exact masses of what is left are below 1 - eps.
void psa__bounds_hold_in_sessions(void**) {
  const SimShape shape = {2, 2, 3, 64, 48, true};
  const Inputs inputs(shape, 250, 55);
  for (const char* eps : {"0.3", "0.9"}) {
    Sim sim(cpu_backend(), inputs,
            {"psa", 0, 4096, 0, {{"eps", eps}, {"mb", "1"}, {"skip_layers", "0"}, {"bound", "true"}}});
    sim.on_layer = [&](uint32_t layer) {
      const KvView view = sim.kv.view(layer);
      for (uint32_t head = 0; head < shape.n_heads(); ++head) {
        const uint32_t kv_head = head / shape.group;
        const std::vector<uint32_t> list = sim.attended(layer, head);
        double all = 0.0, seen = 0.0;
        for (uint32_t row = 0; row < view.n_pages[kv_head]; ++row) {
          double sum = 0.0;
          for (uint32_t j = 0; j < view.len[size_t{kv_head} * view.capacity + row]; ++j) {
            double dot = 0.0;
            for (uint32_t e = 0; e < 64; ++e)
              dot += double{sim.q(layer)[head * 64 + e]} * double{load_element(view.keys_of(kv_head, row), j, e)};
            sum += std::exp(double{shape.scale()} * dot);
          }
          all += sum;
          if (std::binary_search(list.begin(), list.end(), row)) seen += sum;
        }
        assert_true(seen / all > std::strtod(eps, nullptr) - 1e-5);
      }
    };
    sim.prefill(120);
    sim.steps(60);
  }
}

void psa__rules_and_needs(void**) {
  Made all("psa", 0, 1024, {});
  assert_true(all.status.ok() && all.policy->needs().page_lists);
  const StepRules rules = all.policy->step_rules();
  assert_int_equal(rules.stop_microbatch, 8);
  assert_true(rules.stop_eps == 0.98f && !rules.stop_by_bounds && rules.selects);
  assert_int_equal(rules.select_budget, 64);
  assert_int_equal(rules.select_above_pages, 8);
  Made dense("psa", 0, 1024, {{"eps", "1"}});
  assert_true(dense.status.ok() && !dense.policy->needs().page_lists);
  assert_int_equal(dense.policy->step_rules().stop_microbatch, 0);
  Made capped("psa", 256, 1024, {{"eps", "1"}});
  assert_true(capped.status.ok() && capped.policy->needs().page_lists);
  assert_int_equal(capped.policy->step_rules().stop_microbatch, 0);
  assert_int_equal(capped.policy->step_rules().select_above_pages, 16);
  Made bound("psa", 0, 1024, {{"bound", "true"}, {"eps", "0.9"}});
  assert_true(bound.status.ok() && bound.policy->needs().digest == DigestKind::kMinMax);
  assert_true(bound.policy->step_rules().stop_by_bounds && bound.policy->step_rules().stop_eps == 0.9f);
  assert_true(bound.policy->step_rules().agg == AggMode::kMaxRaw);
  Made small("psa", 48, 1024, {{"max_pages", "2"}});
  assert_int_equal(small.policy->step_rules().stop_microbatch, 2);
  assert_int_equal(small.policy->step_rules().select_budget, 2);
  Made quiet("psa", 0, 1024, {{"quiet", "16"}});
  assert_true(quiet.status.ok() && quiet.policy->needs().page_lists);
  assert_int_equal(quiet.policy->step_rules().stop_quiet_pages, 16);
  assert_true(quiet.policy->step_rules().stop_quiet_share == 0.03f);
  const auto refused = [](std::initializer_list<weir_key_value> options) {
    assert_int_equal(Made("psa", 0, 1024, options).status.code(), WEIR_ERR_INVALID_ARG);
  };
  refused({{"quiet", "16"}, {"eps", "0.9"}});
  refused({{"quiet_share", "0.1"}});
  refused({{"quiet", "16"}, {"bound", "true"}});
  refused({{"quiet", "x"}});
  refused({{"quiet", "16"}, {"quiet_share", "nan"}});
  refused({{"quiet", "16"}, {"quiet_share", "1.5"}});
  Made short_context("psa", 0, 128, {});
  assert_true(short_context.status.ok() && !short_context.policy->needs().page_lists);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(psa__lists_in_sessions),         cmocka_unit_test(psa__sizes_of_lists),
      cmocka_unit_test(psa__without_stopping_is_quest), cmocka_unit_test(psa__backends_agree),
      cmocka_unit_test(psa__bounds_hold_in_sessions),   cmocka_unit_test(psa__rules_and_needs),
  };
  return cmocka_run_group_tests_name("policy_psa", tests, nullptr, nullptr);
}
