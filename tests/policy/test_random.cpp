// policy: random, the control. Which page leaves is uniform among those that may, independent between streams and
// steps, and a pure function of seed, stream and positions; the prompt and the open page stay. In a session: the
// budget, prompts of later turns, and prompts that are too long.
#include <algorithm>
#include <vector>

#include "tests/policy/exact_attention.h"
#include "tests/policy/policy_test.h"

namespace {

using namespace weir;
using namespace weir::test;

constexpr uint32_t kPages = 20, kPinned = 3;
constexpr uint32_t kFree = kPages - kPinned - 1;  // without the open page

// A full stream with a pinned prompt of kPinned pages; the answer's pages begin at `first`.
Table full_stream(uint32_t first = 96) {
  Table t(kPages);
  for (uint32_t i = 0; i < kPinned; ++i) t.append(i * kPageTokens, 1, kPagePrompt | kPagePinned);
  for (uint32_t i = kPinned; i < kPages; ++i) t.append(first + i * kPageTokens, 1);
  return t;
}

uint32_t victim_of(const Policy& policy, Table& t, uint32_t pos, uint32_t stream) {
  const uint32_t row = policy.victim(t.view(), room(pos, true, stream));
  assert_true(row >= kPinned && row + 1 < t.n);
  return row;
}

// Chi-squared of counts that should be equal. For f degrees of freedom its mean is f, its deviation sqrt(2 f).
double chi_square(const std::vector<uint32_t>& counts) {
  double n = 0, sum = 0;
  for (uint32_t count : counts) n += count;
  const double want = n / static_cast<double>(counts.size());
  for (uint32_t count : counts) sum += (count - want) * (count - want) / want;
  return sum;
}

// Within five deviations of the mean. The draws are fixed, so this holds always or never.
void assert_uniform(const std::vector<uint32_t>& counts, const char* what) {
  const double freedom = static_cast<double>(counts.size() - 1), x = chi_square(counts);
  if (std::fabs(x - freedom) > 5 * std::sqrt(2 * freedom)) fail_msg("%s: chi-square %g for %g", what, x, freedom);
}

// One draw per page border in each of 64 streams, for several seeds.
void random__every_page_leaves_as_often(void**) {
  Table t = full_stream();
  for (const char* seed : {"0", "1", "2", "4294967295"}) {
    const Made made("random", kPages * kPageTokens, 1u << 20, {{"seed", seed}});
    assert_true(made.status.ok());
    std::vector<uint32_t> counts(kFree);
    for (uint32_t stream = 0; stream < 64; ++stream) {
      for (uint32_t page = 0; page < 256; ++page)
        ++counts[victim_of(*made.policy, t, 4096 + page * kPageTokens, stream) - kPinned];
    }
    assert_uniform(counts, seed);
  }
}

// What leaves one stream, in one step or with one seed, says nothing about the next.
void random__draws_are_independent(void**) {
  Table t = full_stream();
  std::vector<uint32_t> streams(kFree * kFree), moments(kFree * kFree), seeds(kFree * kFree);
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    const std::string text = std::to_string(seed), next = std::to_string(seed + 1);
    const Made one("random", kPages * kPageTokens, 1u << 20, {{"seed", text.c_str()}});
    const Made two("random", kPages * kPageTokens, 1u << 20, {{"seed", next.c_str()}});
    for (uint32_t stream = 0; stream < 32; ++stream) {
      for (uint32_t page = 0; page < 128; ++page) {
        const uint32_t pos = 4096 + page * kPageTokens;
        const uint32_t row = victim_of(*one.policy, t, pos, stream) - kPinned;
        ++streams[row * kFree + victim_of(*one.policy, t, pos, stream + 1) - kPinned];
        ++moments[row * kFree + victim_of(*one.policy, t, pos + kPageTokens, stream) - kPinned];
        ++seeds[row * kFree + victim_of(*two.policy, t, pos, stream) - kPinned];
      }
    }
  }
  assert_uniform(streams, "streams");
  assert_uniform(moments, "moments");
  assert_uniform(seeds, "seeds");
}

// Several pages that leave in one step are a uniform choice, too: of ordered pairs, no page twice.
void random__pairs_of_one_moment_are_uniform(void**) {
  const Made made("random", kPages * kPageTokens, 1u << 20, {});
  std::vector<uint32_t> pairs(kFree * (kFree - 1));
  for (uint32_t stream = 0; stream < 64; ++stream) {
    for (uint32_t page = 0; page < 256; ++page) {
      Table t = full_stream();
      const uint32_t pos = 4096 + page * kPageTokens, first = victim_of(*made.policy, t, pos, stream);
      t.remove(first);
      ++pairs[(first - kPinned) * (kFree - 1) + victim_of(*made.policy, t, pos, stream) - kPinned];
    }
  }
  assert_uniform(pairs, "pairs");
}

// The numbers must never change, nor differ between devices. The expected ones were computed by other code, from the
// definition in lib/ops/step_rules.h.
void random__the_order_is_this_one(void**) {
  assert_true(random_order(1, 0, 0, 0) == 0xB18A02F46D8D86C3u);
  assert_true(random_order(1, 2, 528, 96) == 0x7847164ADB2C3EF8u);
  assert_true(random_order(UINT32_MAX, 255, 131072, 131056) == 0x36BFD6F89BC39B1u);
}

// The candidate of least order leaves, whatever the attention was; asked again, the answer is the same.
void random__the_choice_is_a_function_of_seed_stream_and_positions(void**) {
  const Made made("random", kPages * kPageTokens, 1u << 20, {{"seed", "7"}});
  for (uint32_t stream : {0u, 1u, 255u}) {
    for (uint32_t pos = 4096; pos < 4096 + 64 * kPageTokens; pos += kPageTokens) {
      Table t = full_stream();
      uint32_t want = kPinned;
      for (uint32_t row = kPinned; row + 1 < t.n; ++row) {
        if (random_order(7, stream, pos, t.first_pos[row]) < random_order(7, stream, pos, t.first_pos[want]))
          want = row;
      }
      for (uint32_t i = 0; i < t.n; ++i) t.stamp[i] = pos * i % 97, t.score[i] = static_cast<float>(i * pos % 89);
      assert_int_equal(victim_of(*made.policy, t, pos, stream), want);
      assert_int_equal(victim_of(*made.policy, t, pos, stream), want);
      assert_int_equal(made.policy->victim(t.view(), room(pos, false, stream)), Policy::kNone);
    }
  }
}

// The kernels' rules have the same rule and the same seed.
void random__rules_say_the_same(void**) {
  const Made made("random", 512, 4096, {{"seed", "4294967295"}});
  const StepRules rules = made.policy->step_rules();
  assert_true(rules.victim == VictimRule::kRandom && rules.seed == UINT32_MAX);
  assert_true(rules.observe == StepRules::Observe::kNone && !rules.selects);
  const PolicyNeeds& needs = made.policy->needs();
  assert_true(!needs.page_mass && !needs.page_lists && needs.digest == DigestKind::kNone);
}

// A whole session: no pinned page leaves, the budget holds at every step, all resident pages are attended, and streams
// differ.
void random__in_a_session(void**) {
  const SimShape shape = {2, 2, 3, 64, 48, true};
  const Inputs inputs(shape, 420, 91);
  const ExactAttention exact(inputs);
  for (uint32_t n_prompt : {1u, 15u, 16u, 17u, 33u, 100u}) {
    Sim sim(cpu_backend(), inputs, {"random", 192, 4096, 0, {{"overflow", "error"}}});
    sim.on_evict = [&](uint32_t, const StreamView& v, uint32_t row, const RoomArgs&) {
      assert_int_equal(v.flags[row] & (kPagePrompt | kPageStays), 0);
      assert_true(row + 1 < v.n_pages);
    };
    sim.prefill(n_prompt);
    bool differ = false;
    for (uint32_t i = 0; i < 300; ++i) {
      sim.step();
      const auto pages = sim.all_pages();
      for (uint32_t s = 0; s < 4; ++s) {
        assert_int_equal(pages[s].size(), std::min(12u, whole_pages(sim.n_tokens())));
        for (uint32_t page = 0; page < whole_pages(n_prompt); ++page)
          assert_int_equal(pages[s][page], page * kPageTokens);
        differ = differ || pages[s] != pages[0];
      }
      if (i % 97 != 0) continue;
      std::vector<uint32_t> positions;
      for (uint32_t first : pages[3]) {
        for (uint32_t pos = first; pos < std::min(first + kPageTokens, sim.n_tokens()); ++pos) positions.push_back(pos);
      }
      const std::vector<double> want = exact.output(1, 5, sim.n_tokens() - 1, positions);
      const float* got = sim.out[1].data() + sim.out[1].size() - shape.head_dim;
      for (size_t e = 0; e < want.size(); ++e) assert_true(std::fabs(double{got[e]} - want[e]) < 1e-4);
    }
    assert_true(differ && sim.n_evicted > 0);
  }
}

// The same conversation keeps the same pages, however its prompt was cut into chunks; another seed keeps others.
void random__sessions_repeat(void**) {
  const Inputs small({2, 2, 3, 64, 24, true}, 420, 92), large({2, 2, 3, 64, 512, true}, 420, 92);
  Sim one(cpu_backend(), large, {"random", 192, 4096, 0, {}}), two(cpu_backend(), small, {"random", 192, 4096, 0, {}});
  Sim other(cpu_backend(), large, {"random", 192, 4096, 0, {{"seed", "2"}}});
  for (Sim* sim : {&one, &two, &other}) {
    sim->prefill(50);
    sim->steps(300);
  }
  assert_true(one.all_pages() == two.all_pages());
  assert_true(one.all_pages() != other.all_pages());
}

// Prompts as under raas: those of later turns stay, too; one that is too long is compressed, refused, or gets an
// extended table; and pages of one that is not pinned compete.
void random__prompts_as_under_raas(void**) {
  const Inputs inputs({2, 2, 3, 64, 64, true}, 800, 93);
  Sim later(cpu_backend(), inputs, {"random", 256, 4096, 0, {{"overflow", "error"}}});
  later.prefill(20);
  later.steps(250);
  const uint32_t first = later.n_tokens();
  later.prefill(50);
  later.steps(250);
  for (uint32_t s = 0; s < 4; ++s) {
    for (uint32_t pos : {0u, 16u, first / 16 * 16, first / 16 * 16 + 16, first / 16 * 16 + 32})
      assert_true(later.row_of(s, pos) != Policy::kNone);
    assert_int_equal(later.pages(s).size(), 16);
  }
  Sim refused(cpu_backend(), inputs, {"random", 128, 4096, 0, {{"overflow", "error"}}});
  assert_int_equal(refused.policy().admit_prompt(refused.kv, 100).code(), WEIR_ERR_BUDGET);
  assert_non_null(std::strstr(last_error_text(), "policy random"));
  assert_non_null(std::strstr(last_error_text(), "64 would"));
  Sim compressed(cpu_backend(), inputs, {"random", 128, 4096, 0, {}});
  compressed.prefill(300);
  compressed.steps(200);
  Sim extended(cpu_backend(), inputs, {"random", 128, 4096, 300, {{"overflow", "extend"}}});
  extended.prefill(300);
  extended.steps(200);
  Sim unpinned(cpu_backend(), inputs, {"random", 128, 4096, 0, {{"pin_prompt", "false"}}});
  unpinned.prefill(300);
  unpinned.steps(300);
  assert_int_equal(compressed.kv.pages_resident_max(), 8 * 4);
  assert_int_equal(extended.kv.pages_resident_max(), (19 + 4) * 4);
  assert_int_equal(unpinned.kv.pages_resident_max(), 8 * 4);
  assert_int_equal(extended.kv.prompt_pages_evicted(), 0);
  assert_true(unpinned.kv.prompt_pages_evicted() > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(random__every_page_leaves_as_often),
      cmocka_unit_test(random__draws_are_independent),
      cmocka_unit_test(random__pairs_of_one_moment_are_uniform),
      cmocka_unit_test(random__the_order_is_this_one),
      cmocka_unit_test(random__the_choice_is_a_function_of_seed_stream_and_positions),
      cmocka_unit_test(random__rules_say_the_same),
      cmocka_unit_test(random__in_a_session),
      cmocka_unit_test(random__sessions_repeat),
      cmocka_unit_test(random__prompts_as_under_raas),
  };
  return cmocka_run_group_tests_name("policy_random", tests, nullptr, nullptr);
}
