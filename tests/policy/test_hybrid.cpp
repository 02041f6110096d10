// policy: hybrid in a session. Prompt pages never leave, and the best of them are attended. Decoded pages have the part
// of the budget that attended prompt pages do not take, and are all attended. Memory does not depend on the decoded
// length.
#include "tests/policy/exact_attention.h"

namespace {

using namespace weir;
using namespace weir::test;

const SimShape kShapes[] = {
    {3, 2, 4, 64, 512, true}, {3, 1, 7, 64, 24, true}, {3, 3, 3, 64, 512, true}, {3, 1, 8, 128, 48, true}};
constexpr uint32_t kPrompts[] = {1, 15, 16, 17, 31, 33, 100, 127, 128, 129, 200};

// 16 pages: up to 8 of the prompt attended, the other decoded ones resident. The first layer attends everything.
PolicySpec hybrid(uint32_t max_prompt) {
  return {"hybrid", 256, 4096, max_prompt, {{"skip_layers", "1"}, {"protect_recent", "2"}}};
}

// The number of decoded pages for which a prompt of n_prompt tokens leaves room.
uint32_t decode_pages(uint32_t n_prompt) { return 16 - std::min(8u, whole_pages(n_prompt)); }

uint32_t prompt_pages(const StreamView& v) {
  uint32_t n = 0;
  for (uint32_t row = 0; row < v.n_pages; ++row) n += (v.flags[row] & kPagePrompt) != 0 ? 1 : 0;
  return n;
}

// One list per stream: the prompt's share, the sink page, and every decoded page.
void check_lists(const Sim& sim, uint32_t layer, uint32_t n_attended) {
  for (uint32_t kv_head = 0; kv_head < sim.shape.n_kv_heads; ++kv_head) {
    const StreamView v = sim.kv.stream(layer * sim.shape.n_kv_heads + kv_head);
    const std::vector<uint32_t> list = sim.attended(layer, kv_head * sim.shape.group);
    const uint32_t n_prompt = prompt_pages(v);
    assert_int_equal(list.size(), (layer == 0 ? n_prompt : std::min(n_prompt, n_attended)) + (v.n_pages - n_prompt));
    assert_true(std::is_sorted(list.begin(), list.end()) && list.front() == 0 && list.back() == v.n_pages - 1);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      if ((v.flags[row] & kPagePrompt) == 0) assert_true(std::binary_search(list.begin(), list.end(), row));
    }
  }
}

void check_tables(const Sim& sim, uint32_t n_prompt, uint32_t n_decode) {
  for (uint32_t s = 0; s < sim.kv.shape().n_streams(); ++s) {
    const StreamView v = sim.kv.stream(s);
    assert_int_equal(prompt_pages(v), whole_pages(n_prompt));
    for (uint32_t row = 0; row < whole_pages(n_prompt); ++row) assert_int_equal(v.first_pos[row], row * kPageTokens);
    assert_int_equal(v.n_pages - whole_pages(n_prompt),
                     std::min(n_decode, whole_pages(sim.n_tokens()) - whole_pages(n_prompt)));
  }
}

void hybrid__invariants(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 520, 61);
    for (uint32_t n_prompt : kPrompts) {
      Sim sim(cpu_backend(), inputs, hybrid(208));
      sim.on_layer = [&](uint32_t layer) { check_lists(sim, layer, 8); };
      sim.on_evict = [&](uint32_t, const StreamView& v, uint32_t row, const RoomArgs&) {
        assert_int_equal(v.flags[row] & (kPagePrompt | kPageStays), 0);
        assert_true(row + 2 < v.n_pages);  // two are protected
      };
      sim.prefill(n_prompt);
      for (uint32_t i = 0; i < 310; ++i) {
        sim.step();
        check_tables(sim, n_prompt, decode_pages(n_prompt));
      }
      assert_true(sim.n_evicted > 0);
    }
  }
}

// Pages on the device are those of the prompt and eight more, after 150 decoded tokens as after 1500.
void hybrid__memory_does_not_depend_on_the_answer(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 1700, 62);
  Sim sim(cpu_backend(), inputs, hybrid(512));
  sim.prefill(200);
  sim.steps(150);
  assert_int_equal(sim.kv.pages_resident(), 4 * (13 + 8));
  sim.steps(1350);
  assert_int_equal(sim.kv.pages_resident(), 4 * (13 + 8));
  assert_int_equal(sim.kv.pages_resident_max(), 4 * (13 + 8));
}

// The plan is exact: the prompts that a session may hold reach its pages per stream, and none needs more.
void hybrid__pages_are_as_planned(void**) {
  const SimShape shape = {2, 2, 4, 64, 512, true};
  const Inputs inputs(shape, 620, 67);
  const std::vector<weir_key_value> raas = {{"overflow", "hybrid"}, {"skip_layers", "0"}, {"min_decode_pages", "4"}};
  for (uint32_t max_prompt : {16u, 100u, 128u, 129u, 200u, 208u}) {
    for (const PolicySpec& spec : {hybrid(max_prompt), PolicySpec{"raas", 256, 4096, max_prompt, raas}}) {
      uint64_t most = 0;
      uint32_t planned = 0;
      for (uint32_t n_prompt : kPrompts) {
        Sim sim(cpu_backend(), inputs, spec);
        planned = sim.needs().pages_per_stream;
        if (!sim.policy().admit_prompt(sim.kv, n_prompt).ok()) continue;
        sim.prefill(n_prompt);
        sim.steps(400);
        most = std::max(most, sim.kv.pages_resident_max());
      }
      assert_int_equal(most, 4 * planned);
    }
  }
}

// Later prompts take their part back from the answer.
void hybrid__a_later_prompt_takes_its_part_back(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 700, 68);
  Sim sim(cpu_backend(), inputs, hybrid(512));
  sim.prefill(16);
  sim.steps(304);
  check_tables(sim, 16, 15);
  sim.prefill(48);
  sim.steps(64);
  for (uint32_t s = 0; s < 4; ++s) {
    assert_int_equal(prompt_pages(sim.kv.stream(s)), 4);
    assert_int_equal(sim.pages(s).size(), 16);
  }
  sim.prefill(160);
  sim.steps(1);
  for (uint32_t s = 0; s < 4; ++s) {
    // One page of the first prompt and ten of the latest; the three of the one between are like the answer's now.
    assert_int_equal(prompt_pages(sim.kv.stream(s)), 11);
    assert_int_equal(sim.pages(s).size(), 11 + 8);
  }
}

// While only the open page is not part of the prompt, hybrid and quest select from the same pages; quest's budget
// includes the open page.
void hybrid__chooses_prompt_pages_as_quest_does(void**) {
  for (const Backend* backend : kBackends) {
    const Inputs inputs({2, 2, 3, 64, 512, true}, 250, 63);
    for (const auto& [digest, source] : {std::pair{"minmax", "digest"}, {"mean_std", "exact_mass"}}) {
      Sim one(*backend, inputs,
              {"hybrid", 256, 4096, 0, {{"skip_layers", "0"}, {"digest", digest}, {"stamp_source", source}}});
      Sim two(*backend, inputs,
              {"quest", 9 * 16, 4096, 0, {{"skip_layers", "0"}, {"digest", digest}, {"sink_pages", "1"}}});
      one.prefill(208);
      two.prefill(208);
      for (uint32_t i = 0; i < 16; ++i) {
        one.step();
        two.step();
        for (uint32_t layer = 0; layer < 2; ++layer) {
          for (uint32_t head : {0u, 3u}) assert_true(one.attended(layer, head) == two.attended(layer, head));
        }
      }
      assert_same_outputs(one, two, "hybrid and quest");
    }
  }
}

// A step's output is dense attention over the list.
void hybrid__attends_the_union(void**) {
  for (const Backend* backend : kBackends) {
    const SimShape shape = {2, 2, 3, 64, 512, true};
    const Inputs inputs(shape, 420, 64);
    const ExactAttention exact(inputs);
    Sim sim(*backend, inputs, hybrid(208));
    sim.on_layer = [&](uint32_t layer) {
      if (sim.n_tokens() % 41 != 0) return;
      for (uint32_t head = 0; head < 6; ++head) {
        const StreamView v = sim.kv.stream(layer * 2 + head / 3);
        std::vector<uint32_t> positions;
        for (uint32_t row : sim.attended(layer, head)) {
          for (uint32_t j = 0; j < v.len[row]; ++j) positions.push_back(v.first_pos[row] + j);
        }
        const std::vector<double> want = exact.output(layer, head, sim.n_tokens(), positions);
        const float* got = sim.out[layer].data() + sim.out[layer].size() - size_t{6 - head} * 64;
        for (size_t e = 0; e < want.size(); ++e) assert_true(std::fabs(double{got[e]} - want[e]) < 1e-4);
      }
    };
    sim.prefill(200);
    sim.steps(210);
  }
}

// Prompts of later turns stay as well, with the page that they share with the answer before them.
void hybrid__later_prompts_stay(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 900, 65);
  Sim sim(cpu_backend(), inputs, hybrid(400));
  sim.prefill(150);
  sim.steps(205);
  const uint32_t first = sim.n_tokens();
  sim.prefill(90);
  sim.on_layer = [&](uint32_t layer) { check_lists(sim, layer, 8); };
  sim.steps(300);
  for (uint32_t s = 0; s < 4; ++s) {
    const StreamView v = sim.kv.stream(s);
    for (uint32_t pos = 0; pos < 150; pos += kPageTokens) assert_true(sim.row_of(s, pos) != Policy::kNone);
    for (uint32_t pos = first / kPageTokens * kPageTokens; pos < first + 90; pos += kPageTokens)
      assert_true(sim.row_of(s, pos) != Policy::kNone);
    assert_int_equal(v.n_pages - prompt_pages(v), 8);
  }
}

// raas with overflow=hybrid: a prompt that leaves enough room is attended whole, and the rest of the budget is for the
// answer; a longer prompt is attended as by hybrid.
void hybrid__raas_becomes_it_when_needed(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 700, 66);
  const PolicySpec spec = {
      "raas", 256, 4096, 512, {{"overflow", "hybrid"}, {"skip_layers", "0"}, {"protect_recent", "2"}}};
  Sim fits(cpu_backend(), inputs, spec);
  fits.prefill(192);  // 12 pages, 4 left
  fits.on_layer = [&](uint32_t layer) { assert_false(fits.selects(layer)); };
  fits.steps(100);
  check_tables(fits, 192, 4);
  Sim does_not(cpu_backend(), inputs, spec);
  does_not.prefill(193);
  does_not.on_layer = [&](uint32_t layer) {
    assert_true(does_not.selects(layer));
    for (uint32_t kv_head = 0; kv_head < 2; ++kv_head) {
      const StreamView v = does_not.kv.stream(layer * 2 + kv_head);
      assert_int_equal(does_not.attended(layer, kv_head * 4).size(), 8 + v.n_pages - 13);
    }
  };
  does_not.steps(200);
  check_tables(does_not, 193, 8);
}

// A prompt that is attended whole may leave the answer less than its part, so no more is promised to pins.
void hybrid__pins_leave_room_for_the_answer(void**) {
  const Inputs inputs({2, 2, 4, 64, 512, true}, 700, 69);
  const std::vector<weir_key_value> raas = {{"overflow", "hybrid"}, {"skip_layers", "0"}, {"min_decode_pages", "4"}};
  for (uint32_t n_prompt : {32u, 192u}) {
    Sim sim(cpu_backend(), inputs, {"raas", 256, 4096, n_prompt == 32 ? 512u : 160u, raas});
    sim.prefill(n_prompt);
    sim.steps(56);
    assert_int_equal(sim.policy().admit_pin(sim.kv, n_prompt, n_prompt + 33).code(), WEIR_ERR_BUDGET);
    assert_non_null(std::strstr(last_error_text(), "would leave 1 of 4 decode pages that can make room, 2 are needed"));
    sim.pin(n_prompt, n_prompt + 32);
    if (n_prompt == 32) sim.prefill(160);
    sim.steps(200);
    for (uint32_t s = 0; n_prompt == 192 && s < 4; ++s) assert_int_equal(sim.pages(s).size(), 16);
    for (uint32_t head = 0; head < 8; ++head) assert_true(sim.attended(1, head).size() <= 16);
  }
}

// With raas `digest` is about stamps, so that the pages of its prompts have no other digest than those.
void hybrid__digests_of_prompt_pages(void**) {
  const struct {
    const char* name;
    std::vector<weir_key_value> options;
    DigestKind digest;
    AggMode agg;
  } rows[] = {{"hybrid", {}, DigestKind::kSketch, AggMode::kSumProb},
              {"hybrid", {{"digest", "minmax"}}, DigestKind::kMinMax, AggMode::kMaxRaw},
              {"hybrid", {{"stamp_source", "digest"}}, DigestKind::kMinMax, AggMode::kMaxRaw},
              {"raas", {{"overflow", "hybrid"}}, DigestKind::kMinMax, AggMode::kMaxRaw}};
  PolicyConfig config;
  config.n_layers = 4, config.n_heads = 4, config.n_kv_heads = 2, config.head_dim = 64;
  config.context_tokens = 4096, config.max_prompt_tokens = 512, config.budget_tokens = 256;
  for (const auto& row : rows) {
    config.options = row.options;
    PolicyStorage storage;
    Policy* policy = nullptr;
    assert_true(make_policy(row.name, config, storage, policy).ok());
    assert_true(policy->needs().digest == row.digest && policy->step_rules().agg == row.agg);
    policy->~Policy();
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hybrid__digests_of_prompt_pages),
      cmocka_unit_test(hybrid__pins_leave_room_for_the_answer),
      cmocka_unit_test(hybrid__invariants),
      cmocka_unit_test(hybrid__memory_does_not_depend_on_the_answer),
      cmocka_unit_test(hybrid__pages_are_as_planned),
      cmocka_unit_test(hybrid__a_later_prompt_takes_its_part_back),
      cmocka_unit_test(hybrid__chooses_prompt_pages_as_quest_does),
      cmocka_unit_test(hybrid__attends_the_union),
      cmocka_unit_test(hybrid__later_prompts_stay),
      cmocka_unit_test(hybrid__raas_becomes_it_when_needed),
  };
  return cmocka_run_group_tests_name("policy_hybrid", tests, nullptr, nullptr);
}
