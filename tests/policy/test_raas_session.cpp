// policy: RaaS in a session (docs/algorithms.md, "Invariants of RaaS"), and planted pages: a milestone that is used
// for long, and phoenixes: pages that are used again after a long silence.
#include <cstdlib>
#include <map>

#include "tests/policy/exact_attention.h"

namespace {

using namespace weir;
using namespace weir::test;

const SimShape kShapes[] = {
    {3, 2, 4, 64, 512, true}, {3, 1, 7, 64, 24, true}, {3, 3, 3, 64, 512, true}, {3, 1, 8, 128, 48, true}};

bool stays(const StreamView& v, uint32_t row) { return (v.flags[row] & kPageStays) != 0; }

// (2), (4) and (5): who may be a victim, with `n_protected` newest unpinned pages left alone.
void check_victim(const StreamView& v, uint32_t victim, uint32_t n_protected) {
  assert_false(stays(v, victim));
  assert_true(victim + 1 < v.n_pages);  // the page that was sealed last, the open one until now
  std::vector<uint32_t> free;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (!stays(v, row)) free.push_back(row);
  }
  const auto n_free = static_cast<uint32_t>(free.size());
  n_protected = std::max(1u, std::min(n_protected, n_free - std::max(1u, n_free / 4)));
  free.resize(free.size() - n_protected);
  assert_true(std::find(free.begin(), free.end(), victim) != free.end());
  const auto end = [&](uint32_t row) { return v.stamp[row] + (v.last_gap != nullptr ? v.last_gap[row] : 0); };
  for (uint32_t row : free) {
    assert_true(end(victim) <= end(row));
    if (end(victim) == end(row)) assert_true(v.last_score[victim] <= v.last_score[row]);
  }
}

void run_invariants(const SimShape& shape, const Inputs& inputs, uint32_t n_prompt, const char* protect,
                    std::vector<weir_key_value> options) {
  options.push_back({"protect_recent", protect});
  options.push_back({"overflow", "error"});
  Sim sim(cpu_backend(), inputs, {"raas", 192, 4096, 0, options});
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> stamps, gaps;
  sim.on_evict = [&](uint32_t, const StreamView& v, uint32_t row, const RoomArgs&) {
    check_victim(v, row, static_cast<uint32_t>(protect[0] - '0'));
  };
  sim.prefill(n_prompt);
  const uint32_t n_prompt_pages = whole_pages(n_prompt), n_streams = shape.n_layers * shape.n_kv_heads;
  for (uint32_t s = 0; s < n_streams; ++s) {
    for (uint32_t row = 0; row < n_prompt_pages; ++row) assert_int_equal(sim.kv.stream(s).stamp[row], n_prompt);
    for (uint32_t row = 0; row < n_prompt_pages; ++row) stamps[{s, row * kPageTokens}] = n_prompt;
  }
  for (uint32_t i = 0; i < 230; ++i) {
    sim.step();
    const uint32_t now = sim.n_tokens();
    for (uint32_t s = 0; s < n_streams; ++s) {
      const StreamView v = sim.kv.stream(s);
      assert_int_equal(v.n_pages, std::min(12u, whole_pages(now)));  // (1); a full stream stays full
      assert_int_equal(v.stamp[v.n_pages - 1], now);
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        if (row < n_prompt_pages) assert_int_equal(v.first_pos[row], row * kPageTokens);  // (2)
        assert_int_equal(stays(v, row), row < n_prompt_pages);
        uint32_t& before = stamps[{s, v.first_pos[row]}];
        assert_true(v.stamp[row] <= now && v.stamp[row] >= before);  // (3)
        uint32_t& gap = gaps[{s, v.first_pos[row]}];
        if (before != 0) gap = std::max(gap, v.stamp[row] - before);
        if (v.last_gap != nullptr) assert_int_equal(v.last_gap[row], gap);
        before = v.stamp[row];
      }
    }
    if (whole_pages(now) >= 12) assert_int_equal(sim.kv.pages_resident(), 12 * n_streams);  // (8)
  }
  assert_true(sim.n_evicted > 0);
}

void raas_session__invariants(void**) {
  for (const SimShape& shape : kShapes) {
    const Inputs inputs(shape, 340, 51);
    for (uint32_t n_prompt : kRaggedPrompts) {
      run_invariants(shape, inputs, n_prompt, "0", {});
      run_invariants(shape, inputs, n_prompt, "3", {{"stamp_rule", "alpha"}, {"alpha", "0.05"}});
    }
    run_invariants(shape, inputs, 33, "3", {{"stamp_source", "digest"}});
    run_invariants(shape, inputs, 33, "3", {{"decide", "gap"}, {"alpha", "0.1"}});
    run_invariants(shape, inputs, 48, "0", {{"decide", "gap"}, {"r", "0.3"}});
    run_invariants(shape, inputs, 47, "2", {{"decide", "gap"}, {"stamp_source", "digest"}});
    run_invariants(shape, inputs, 47, "2", {{"stamp_source", "digest"}, {"digest", "mean_std"}, {"r", "0.3"}});
    run_invariants(shape, inputs, 48, "1", {{"rank_scope", "all"}, {"r", "0.75"}});
  }
}

// The first and the latest prompt of a conversation are pinned; those between are like pages of answers, from
// the moment when the next prompt begins, and leave for what comes.
void raas_session__first_and_latest_prompt_are_pinned(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 1200, 57);
  for (const char* overflow : {"error", "compress"}) {
    Sim sim(cpu_backend(), inputs, {"raas", 256, 4096, 0, {{"overflow", overflow}}});
    std::vector<std::pair<uint32_t, uint32_t>> prompts;  // first position and end
    for (uint32_t turn = 0; turn < 12; ++turn) {
      const uint32_t first = sim.n_tokens();
      sim.prefill(turn == 0 ? 40 : 33);
      prompts.push_back({first, sim.n_tokens()});
      sim.steps(turn % 3 == 1 ? 5 : 40);  // short answers, too
      const auto is_in = [&](uint32_t pos, size_t prompt) {
        return pos + kPageTokens > prompts[prompt].first && pos < prompts[prompt].second;
      };
      for (uint32_t s = 0; s < 4; ++s) {
        const StreamView v = sim.kv.stream(s);
        uint32_t n_first = 0, n_latest = 0;
        for (uint32_t row = 0; row < v.n_pages; ++row) {
          const bool is_first = is_in(v.first_pos[row], 0), is_latest = is_in(v.first_pos[row], turn);
          assert_int_equal(stays(v, row), is_first || is_latest);
          assert_int_equal((v.flags[row] & kPageFirstPrompt) != 0, is_first);
          n_first += is_first;
          n_latest += is_latest;
        }
        assert_int_equal(n_first, 3);
        assert_true(n_latest >= 3);
      }
    }
    assert_true(sim.n_evicted > 0);
  }
}

// (7): a step's output is dense attention over what is resident.
void raas_session__attends_all_that_is_resident(void**) {
  for (const Backend* backend : kBackends) {
    for (const SimShape& shape : {SimShape{2, 2, 3, 64, 512, true}, SimShape{2, 1, 4, 128, 48, true}}) {
      const Inputs inputs(shape, 260, 52);
      const ExactAttention exact(inputs);
      Sim sim(*backend, inputs, {"raas", 128, 4096, 0, {{"overflow", "error"}}});
      sim.prefill(33);
      for (uint32_t i = 0; i < 220; ++i) {
        sim.step();
        if (i % 37 != 0) continue;
        for (uint32_t stream = 0; stream < shape.n_layers * shape.n_kv_heads; ++stream) {
          const uint32_t layer = stream / shape.n_kv_heads,
                         head = stream % shape.n_kv_heads * shape.group + i % shape.group;
          std::vector<uint32_t> positions;
          for (uint32_t first : sim.pages(stream)) {
            for (uint32_t pos = first; pos < std::min(first + kPageTokens, sim.n_tokens()); ++pos)
              positions.push_back(pos);
          }
          const std::vector<double> want = exact.output(layer, head, sim.n_tokens() - 1, positions);
          const float* got =
              sim.out[layer].data() + sim.out[layer].size() - size_t{shape.n_heads() - head} * shape.head_dim;
          for (size_t e = 0; e < want.size(); ++e) assert_true(std::fabs(double{got[e]} - want[e]) < 1e-4);
        }
      }
      assert_true(sim.n_evicted > 0);
    }
  }
}

// Pages of a prompt that is not pinned compete with decoded pages.
void raas_session__unpinned_prompts_can_leave(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 600, 53);
  Sim sim(cpu_backend(), inputs, {"raas", 128, 4096, 0, {{"pin_prompt", "false"}}});
  sim.prefill(300);
  sim.steps(300);
  assert_true(sim.kv.pages_resident_max() <= 8 * 4);
  assert_true(sim.kv.prompt_pages_evicted() > 0);
}

// Prompts of later turns are pinned too.
void raas_session__later_prompts_are_pinned(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 600, 54);
  Sim sim(cpu_backend(), inputs, {"raas", 256, 4096, 0, {{"overflow", "error"}}});
  sim.prefill(20);
  sim.steps(200);
  const uint32_t first = sim.n_tokens();
  sim.prefill(50);
  sim.steps(300);
  for (uint32_t s = 0; s < 4; ++s) {
    for (uint32_t pos = first / kPageTokens * kPageTokens; pos < first + 50; pos += kPageTokens)
      assert_true(sim.row_of(s, pos) != Policy::kNone);
    for (uint32_t pos : {0u, 16u}) assert_true(sim.row_of(s, pos) != Policy::kNone);
    assert_int_equal(sim.pages(s).size(), 16);
  }
}

// A pinned prompt leaves min_decode_pages to the answer, and takes all others; the message says how many tokens fit.
void raas_session__the_longest_prompt_fits(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 400, 59);
  for (uint32_t before : {0u, 16u, 30u}) {  // tokens of a first prompt, 12 pages for both and the answer
    for (uint32_t n_steps : {0u, 16u, 21u}) {
      Sim sim(cpu_backend(), inputs, {"raas", 192, 4096, 0, {{"overflow", "error"}, {"min_decode_pages", "4"}}});
      if (before != 0) sim.prefill(before);
      if (before != 0) sim.steps(n_steps);
      assert_int_equal(sim.policy().admit_prompt(sim.kv, 200).code(), WEIR_ERR_BUDGET);
      const char* fits = std::strstr(last_error_text(), "for decoding, ");
      assert_non_null(fits);
      const auto n = static_cast<uint32_t>(std::strtoul(fits + std::strlen("for decoding, "), nullptr, 10));
      assert_true(before != 0 || n == 8 * kPageTokens);
      assert_int_equal(sim.policy().admit_prompt(sim.kv, n + 1).code(), WEIR_ERR_BUDGET);
      sim.prefill(n);
      sim.steps(100);
      for (uint32_t s = 0; s < 4; ++s) {
        const StreamView v = sim.kv.stream(s);
        assert_int_equal(std::count_if(v.flags, v.flags + v.n_pages, [](uint32_t f) { return (f & kPageStays) != 0; }),
                         8);
      }
    }
  }
}

// The end of a prompt stamps the pages that it has tokens in, and no older one.
void raas_session__a_later_prompt_stamps_its_own_pages(void**) {
  const Inputs inputs({2, 2, 3, 64, 512, true}, 600, 58);
  Sim sim(cpu_backend(), inputs, {"raas", 256, 4096, 0, {{"overflow", "error"}}});
  sim.prefill(20);
  sim.steps(200);
  const uint32_t first = sim.n_tokens();
  assert_true(first % kPageTokens != 0);  // the prompt begins inside a page
  std::vector<std::map<uint32_t, uint32_t>> before(4);
  for (uint32_t s = 0; s < 4; ++s) {
    const StreamView v = sim.kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) before[s][v.first_pos[row]] = v.stamp[row];
  }
  sim.prefill(50);
  for (uint32_t s = 0; s < 4; ++s) {
    const StreamView v = sim.kv.stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      const bool of_prompt = v.first_pos[row] + v.len[row] > first;
      assert_int_equal(v.stamp[row], of_prompt ? sim.n_tokens() : before[s].at(v.first_pos[row]));
    }
  }
}

// Adds `amount` along eight channels of their own to the keys of one page, in every stream.
void plant_keys(Inputs& inputs, uint32_t page, uint32_t channel, float amount) {
  const SimShape& s = inputs.shape;
  for (uint32_t layer = 0; layer < s.n_layers; ++layer) {
    for (uint32_t i = 0; i < kPageTokens * s.n_kv_heads; ++i) {
      for (uint32_t e = channel; e < channel + 8; ++e)
        inputs.k(layer, page * kPageTokens)[size_t{i} * s.head_dim + e] += amount;
    }
  }
}

// The same for the queries of the positions [first, end).
void plant_queries(Inputs& inputs, uint32_t first, uint32_t end, uint32_t channel, float amount) {
  const SimShape& s = inputs.shape;
  for (uint32_t layer = 0; layer < s.n_layers; ++layer) {
    for (size_t i = 0; i < size_t{end - first} * s.n_heads(); ++i) {
      for (uint32_t e = channel; e < channel + 8; ++e) inputs.q(layer, first)[i * s.head_dim + e] += amount;
    }
  }
}

// A prompt of half the budget that gets most of the attention: ranked with the other pages it takes every stamp, and
// the answer becomes a queue; not so when only pages that can leave are ranked.
void raas_session__rank_scope(void**) {
  const SimShape shape = {2, 2, 3, 64, 512, false};
  Inputs inputs(shape, 400, 57);
  for (uint32_t page = 0; page < 4; ++page) plant_keys(inputs, page, 0, 4.0f);
  plant_queries(inputs, 0, 400, 0, 1.0f);
  for (const char* scope : {"all", "evictable"}) {
    Sim sim(cpu_backend(), inputs,
            {"raas", 128, 4096, 0, {{"stamp_rule", "top_r"}, {"rank_scope", scope}, {"protect_recent", "0"}}});
    Sim queue(cpu_backend(), inputs, {"raas", 128, 4096, 0, {{"r", "0"}}});
    bool differs = false;
    for (Sim* s : {&sim, &queue}) s->prefill(64);
    for (uint32_t i = 0; i < 300; ++i) {
      for (Sim* s : {&sim, &queue}) s->step();
      differs = differs || sim.all_pages() != queue.all_pages();
    }
    assert_int_equal(differs, scope[0] == 'e');
  }
}

constexpr uint32_t kBudgetPages = 8;
constexpr uint32_t kSpan = 3 * kBudgetPages * kPageTokens;

// A milestone, page 3, is used for three budgets of steps and then gets less attention than any other page: RaaS keeps
// it that long and evicts it within a budget of steps; a queue has lost it long before.
void raas_session__milestone(void**) {
  const SimShape shape = {2, 2, 3, 64, 512, false};
  constexpr uint32_t kFades = 64 + kSpan;
  Inputs inputs(shape, kFades + kBudgetPages * kPageTokens + 40, 55);
  plant_keys(inputs, 3, 0, 4.0f);
  plant_queries(inputs, 48, kFades, 0, 2.0f);
  plant_queries(inputs, kFades, inputs.n_tokens, 0, -2.0f);
  for (const Backend* backend : kBackends) {
    for (bool queue : {false, true}) {
      Sim sim(*backend, inputs,
              {"raas", kBudgetPages * kPageTokens, 4096, 0, {{"overflow", "error"}, {"r", queue ? "0" : "0.5"}}});
      sim.prefill(16);
      while (sim.n_tokens() < kFades) {
        sim.step();
        for (uint32_t s = 0; s < 4; ++s) {
          const bool is_there = sim.row_of(s, 48) != Policy::kNone;
          if (!queue && sim.n_tokens() > 48) assert_true(is_there);
          if (queue && sim.n_tokens() > 48 + kBudgetPages * kPageTokens) assert_false(is_there);
        }
      }
      sim.steps(kBudgetPages * kPageTokens);
      for (uint32_t s = 0; s < 4; ++s) assert_int_equal(sim.row_of(s, 48), Policy::kNone);
    }
  }
}

// Phoenixes: page 1 of the prompt and page 6, decoded, get no attention until late. The one in the prompt is there when
// it is needed, and gets the attention; the other is lost.
void raas_session__phoenix(void**) {
  const SimShape shape = {2, 2, 3, 64, 512, false};
  constexpr uint32_t kWakes = 7 * kPageTokens + kSpan;
  Inputs inputs(shape, kWakes + 20, 56);
  plant_keys(inputs, 1, 0, 4.0f);
  plant_keys(inputs, 6, 16, 4.0f);
  for (uint32_t channel : {0u, 16u}) {
    plant_queries(inputs, 48, kWakes, channel, -2.0f);
    plant_queries(inputs, kWakes, inputs.n_tokens, channel, 2.0f);
  }
  for (const Backend* backend : kBackends) {
    Sim sim(*backend, inputs, {"raas", kBudgetPages * kPageTokens, 4096, 0, {{"overflow", "error"}}});
    sim.prefill(40);
    sim.steps(kWakes - 40);
    for (uint32_t s = 0; s < 4; ++s) {
      assert_int_equal(sim.row_of(s, 16), 1);
      assert_int_equal(sim.row_of(s, 96), Policy::kNone);
    }
    const uint32_t capacity = sim.kv.stream(0).capacity;
    for (uint32_t head = 0; head < 6; ++head) assert_true(sim.mass(1)[head * capacity + 1] < 0.05f);
    sim.step();
    for (uint32_t head = 0; head < 6; ++head) assert_true(sim.mass(1)[head * capacity + 1] > 0.5f);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(raas_session__invariants),
      cmocka_unit_test(raas_session__first_and_latest_prompt_are_pinned),
      cmocka_unit_test(raas_session__attends_all_that_is_resident),
      cmocka_unit_test(raas_session__unpinned_prompts_can_leave),
      cmocka_unit_test(raas_session__later_prompts_are_pinned),
      cmocka_unit_test(raas_session__the_longest_prompt_fits),
      cmocka_unit_test(raas_session__a_later_prompt_stamps_its_own_pages),
      cmocka_unit_test(raas_session__rank_scope),
      cmocka_unit_test(raas_session__milestone),
      cmocka_unit_test(raas_session__phoenix),
  };
  return cmocka_run_group_tests_name("policy_raas_session", tests, nullptr, nullptr);
}
