// policy: pages pinned by the application (kPageKept). No policy evicts them, policies that select pages always list
// them, and pins that would leave no room are refused.
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

const PolicySpec kPolicies[] = {
    {"dense", 0, 1024, 0, {}},
    {"sink", 160, 1024, 0, {{"positions", "abs"}}},
    {"sink", 160, 1024, 0, {{"positions", "abs"}, {"window", "64"}}},
    {"h2o", 160, 1024, 0, {{"skip_layers", "0"}, {"recent", "48"}}},
    {"h2o", 160, 1024, 0, {{"skip_layers", "1"}, {"score", "norm_sum"}, {"init", "zero"}}},
    {"tova", 160, 1024, 0, {{"skip_layers", "0"}}},
    {"tova", 160, 1024, 0, {{"skip_layers", "0"}, {"scope", "stream"}}},
    {"tova", 160, 1024, 0, {{"skip_layers", "0"}, {"decide", "token"}}},
    {"quest", 80, 1024, 0, {{"skip_layers", "0"}}},
    {"quest", 80, 1024, 0, {{"skip_layers", "0"}, {"agg", "qhead"}}},
    {"raas", 160, 1024, 0, {{"overflow", "error"}}},
    {"raas", 160, 1024, 0, {{"overflow", "error"}, {"stamp_source", "digest"}, {"r", "0"}}},
    {"raas", 160, 1024, 0, {{"pin_prompt", "false"}}},
    {"hybrid", 160, 1024, 256, {{"skip_layers", "0"}, {"rho", "0.3"}}},
    {"random", 160, 1024, 0, {{"overflow", "error"}}},
    {"random", 160, 1024, 0, {{"pin_prompt", "false"}}},
    {"keyformer", 160, 1024, 0, {{"skip_layers", "0"}}},
    {"scissorhands", 160, 1024, 0, {{"skip_layers", "0"}}},
    {"arkvale", 160, 1024, 0, {{"recall_from", "4"}}},
    {"arkvale", 160, 1024, 0, {{"recall_from", "4"}, {"attend", "top"}, {"recall_pages", "0"}}},
    {"arkvale", 160, 1024, 0, {{"recall_from", "2"}, {"protect_recent", "2"}, {"recall_pages", "1"}}},
    {"psa", 160, 1024, 0, {{"skip_layers", "0"}, {"eps", "0"}, {"mb", "1"}}},
    {"psa", 0, 1024, 0, {{"skip_layers", "0"}, {"eps", "0.5"}, {"bound", "true"}}},
    {"raas", 160, 1024, 0, {{"recall", "on"}, {"recall_from", "4"}}},
    {"hybrid", 160, 1024, 0, {{"recall", "on"}, {"recall_from", "3"}, {"rho", "0.3"}}},
    {"h2o", 160, 1024, 0, {{"skip_layers", "0"}, {"prompt", "snapkv"}, {"prompt_budget", "96"}}},
    {"raas", 160, 1024, 0, {{"prompt", "snapkv"}, {"prompt_budget", "96"}}},
    {"raas", 160, 1024, 0, {{"prompt", "pyramid"}, {"prompt_budget", "96"}, {"prompt_beta", "1.1"}}},
};

bool holds_whole_prompts(const PolicySpec& spec) {
  return std::any_of(spec.options.begin(), spec.options.end(), [](const weir_key_value& option) {
    return std::strcmp(option.key, "overflow") == 0 && std::strcmp(option.value, "error") == 0;
  });
}

void check_pinned(const Sim& sim, std::initializer_list<uint32_t> pages) {
  for (uint32_t s = 0; s < sim.kv.shape().n_streams(); ++s) {
    for (uint32_t pos : pages) {
      const uint32_t row = sim.row_of(s, pos);
      if (row == Policy::kNone) fail_msg("%u tokens: stream %u has lost page %u", sim.n_tokens(), s, pos);
      const uint32_t layer = s / sim.shape.n_kv_heads, kv_head = s % sim.shape.n_kv_heads;
      for (uint32_t g = 0; g < sim.shape.group; ++g) {
        const std::vector<uint32_t> list = sim.attended(layer, kv_head * sim.shape.group + g);
        if (!std::binary_search(list.begin(), list.end(), row))
          fail_msg("%u tokens: stream %u does not attend page %u", sim.n_tokens(), s, pos);
      }
    }
  }
}

void pins__stay_and_are_attended(void**) {
  // lfps attends tokens: tests/policy/test_lfps.cpp
  ASSERT_EVERY_POLICY_EXCEPT("lfps", kPolicies, name);
  const SimShape shape = {2, 2, 3, 64, 96, true};
  const Inputs inputs(shape, 420, 81);
  for (const Backend* backend : kBackends) {
    for (const PolicySpec& spec : kPolicies) {
      for (uint32_t n_prompt : {33u, 80u}) {
        if (backend == &reference_backend() && n_prompt != 33) continue;
        Sim sim(*backend, inputs, spec);
        sim.on_evict = [](uint32_t, const StreamView& v, uint32_t row, const RoomArgs&) {
          assert_int_equal(v.flags[row] & kPageKept, 0);
        };
        sim.prefill(n_prompt);
        sim.pin(17, 18);  // of the prompt
        sim.steps(120 - n_prompt);
        sim.pin(95, 98);  // two pages of the answer
        for (uint32_t i = 0; i < 200; ++i) {
          sim.step();
          check_pinned(sim, {16, 80, 96});
        }
      }
    }
  }
}

// Pinned pages stay during later prompts, too, even when a prompt policy compresses those.
void pins__stay_through_later_prompts(void**) {
  const SimShape shape = {2, 2, 3, 64, 64, true};
  const Inputs inputs(shape, 520, 82);
  for (const PolicySpec& spec : kPolicies) {
    Sim sim(cpu_backend(), inputs, spec);
    sim.prefill(20);
    sim.steps(40);
    sim.pin(30, 34);
    sim.steps(20);
    sim.prefill(holds_whole_prompts(spec) ? 30 : 150);
    sim.step();
    check_pinned(sim, {16, 32});
    sim.steps(150);
    check_pinned(sim, {16, 32});
  }
}

// The lists of a step have the same size: pinned pages count in the budget of the list.
void pins__are_inside_the_budget(void**) {
  const SimShape shape = {2, 2, 3, 64, 512, true};
  const Inputs inputs(shape, 420, 83);
  Sim quest(cpu_backend(), inputs, {"quest", 96, 1024, 0, {{"skip_layers", "0"}}});
  Sim hybrid(cpu_backend(), inputs, {"hybrid", 192, 1024, 256, {{"skip_layers", "0"}}});
  for (Sim* sim : {&quest, &hybrid}) {
    sim->prefill(200);
    sim->pin(64, 96);
    sim->steps(100);
    check_pinned(*sim, {64, 80});
  }
  for (uint32_t head : {0u, 3u}) {
    assert_int_equal(quest.attended(1, head).size(), 6);
    assert_int_equal(hybrid.attended(1, head).size(), 6 + 6);
  }
}

// With more pinned pages than a list may have, all of them, the first page and the open one are attended.
void pins__beyond_the_choice_are_all_attended(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 420, 84);
  Sim sim(cpu_backend(), inputs, {"quest", 64, 1024, 0, {{"skip_layers", "0"}}});
  sim.prefill(200);
  sim.pin(32, 128);
  sim.steps(20);
  check_pinned(sim, {32, 48, 64, 80, 96, 112});
  assert_int_equal(sim.attended(0, 0).size(), 8);
}

void pins__that_leave_no_room_are_refused(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 420, 85);
  for (const char* name : every_policy) {
    PolicySpec spec = {name, 160, 1024, 0, {}};
    // By default a step wants nearly all pages of the pool, and pins must leave these.
    if (std::strcmp(name, "arkvale") == 0) spec.options.push_back({"recall_from", "4"});
    Sim sim(cpu_backend(), inputs, spec);
    sim.prefill(30);
    sim.steps(130);
    const Status all = sim.policy().admit_pin(sim.kv, 0, 160);
    if (sim.policy().step_rules().victim == VictimRule::kNever) {
      if (!all.ok()) fail_msg("%s, which drops nothing, refuses a pin: %s", name, last_error_text());
      continue;
    }
    if (sim.needs().sink_query) {  // its queries' positions in the cache leave no gap for a page that stays
      assert_int_equal(all.code(), WEIR_ERR_UNSUPPORTED);
      assert_non_null(std::strstr(last_error_text(), "positions=abs"));
      continue;
    }
    if (all.code() != WEIR_ERR_BUDGET || std::strstr(last_error_text(), "0..159") == nullptr)
      fail_msg("%s: status %d (%s)", name, all.code(), last_error_text());
    if (!sim.policy().admit_pin(sim.kv, 64, 96).ok()) fail_msg("%s: %s", name, last_error_text());
  }
}

// Ten pages without gaps, the first two of them the prompt's: eight pins leave the two that are needed, nine do not.
void pins__leave_two_pages(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 420, 87);
  for (const char* name : {"h2o", "tova", "raas", "random"}) {
    Sim sim(cpu_backend(), inputs, {name, 160, 1024, 0, {}});
    sim.prefill(30);
    sim.steps(130);
    if (!sim.policy().admit_pin(sim.kv, 0, 8 * kPageTokens).ok()) fail_msg("%s: %s", name, last_error_text());
    assert_int_equal(sim.policy().admit_pin(sim.kv, 0, 8 * kPageTokens + 1).code(), WEIR_ERR_BUDGET);
    assert_non_null(std::strstr(last_error_text(), "would leave 1 of 10 pages that can make room, 2 are needed"));
  }
}

// The page that was filled last stays, so a prompt takes its place in chunks of what is left.
void pins__a_prompt_after_many(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 420, 88);
  for (const PolicySpec& spec :
       {PolicySpec{"h2o", 256, 1024, 0, {{"skip_layers", "0"}}},
        PolicySpec{"tova", 256, 1024, 0, {{"skip_layers", "0"}}},
        PolicySpec{"random", 256, 1024, 0, {{"pin_prompt", "false"}}},
        PolicySpec{"raas", 256, 1024, 0, {{"pin_prompt", "false"}}},
        PolicySpec{"arkvale", 256, 1024, 0, {{"recall_from", "1"}, {"protect_recent", "0"}}},
        PolicySpec{"raas", 256, 1024, 0, {{"recall", "on"}, {"recall_from", "1"}, {"protect_recent", "0"}}}}) {
    Sim sim(cpu_backend(), inputs, spec);
    sim.prefill(16);
    sim.steps(240);
    sim.pin(0, 224);
    sim.prefill(40);
    sim.steps(40);
    check_pinned(sim, {0, 112, 208});
  }
}

// As many pins as are accepted, then a long answer: there is room until the end.
void pins__the_most_that_is_admitted_works(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 420, 86);
  for (const PolicySpec& spec : kPolicies) {
    Sim sim(cpu_backend(), inputs, spec);
    sim.prefill(30);
    sim.steps(130);
    std::vector<uint32_t> pinned;
    for (uint32_t page = 0; page < 9; ++page) {
      if (sim.row_of(0, page * kPageTokens) == Policy::kNone || sim.row_of(3, page * kPageTokens) == Policy::kNone)
        continue;
      if (!sim.policy().admit_pin(sim.kv, page * kPageTokens, (page + 1) * kPageTokens).ok()) continue;
      sim.pin(page * kPageTokens, (page + 1) * kPageTokens);
      pinned.push_back(page * kPageTokens);
    }
    sim.steps(200);
    for (uint32_t pos : pinned) {
      assert_true(sim.row_of(0, pos) != Policy::kNone && sim.row_of(3, pos) != Policy::kNone);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pins__stay_and_are_attended),
      cmocka_unit_test(pins__stay_through_later_prompts),
      cmocka_unit_test(pins__are_inside_the_budget),
      cmocka_unit_test(pins__beyond_the_choice_are_all_attended),
      cmocka_unit_test(pins__that_leave_no_room_are_refused),
      cmocka_unit_test(pins__leave_two_pages),
      cmocka_unit_test(pins__a_prompt_after_many),
      cmocka_unit_test(pins__the_most_that_is_admitted_works),
  };
  return cmocka_run_group_tests_name("policy_pins", tests, nullptr, nullptr);
}
