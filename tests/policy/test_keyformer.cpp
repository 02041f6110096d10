// policy: Keyformer over pages. What a step adds to a page is computed here in f64 from the masses of the step; the
// page with the least sum outside the recent window leaves.
#include <map>
#include <utility>

#include "tests/policy/policy_test.h"
#include "tests/policy/session_sim.h"

namespace {

using namespace weir;
using namespace weir::test;

using PageOfStream = std::pair<uint32_t, uint32_t>;  // stream, first position

const SimShape kShapes[] = {{2, 2, 4, 64, 64, true}, {1, 1, 1, 32, 64, true}, {2, 3, 3, 64, 32, true}};

struct Noise {
  uint32_t seed;
  double tau, tau_end;
  uint32_t tokens;
  double at(uint32_t n) const { return tau + (tau_end - tau) * std::min(1.0, static_cast<double>(n) / tokens); }
};

// Gumbel noise of a page, from the uniform number that its hash stands for.
double noise(uint32_t seed, uint32_t stream, uint32_t page_pos) {
  const double u = (static_cast<double>(random_order(seed, stream, 0, page_pos) >> 41) + 0.5) / (1 << 23);
  return -std::log(-std::log(u));
}

// Keeps the sums of a session itself, and compares them after every step.
void check_sums(const SimShape& shape, const Noise& n, uint32_t n_prompt, std::vector<weir_key_value> options) {
  constexpr uint32_t kRecent = 40, kTokens = 400;
  const Inputs inputs(shape, kTokens, 31);
  options.push_back({"skip_layers", "0"});
  options.push_back({"recent", "40"});
  Sim sim(cpu_backend(), inputs, {"keyformer", 160, 4096, 0, options});
  std::map<PageOfStream, double> sum;
  sim.on_layer = [&](uint32_t layer) {
    const double tau = n.at(sim.n_tokens() + 1);
    for (uint32_t head = 0; head < shape.n_heads(); ++head) {
      const uint32_t stream = layer * shape.n_kv_heads + head / shape.group;
      const StreamView v = sim.kv.stream(stream);
      std::vector<double> share(v.n_pages);
      double all = 0.0;
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const double mass = double{sim.mass(layer)[size_t{head} * v.capacity + row]};
        share[row] = mass > 0.0 ? std::exp((std::log(mass) + noise(n.seed, stream, v.first_pos[row])) / tau) : 0.0;
        all += share[row];
      }
      for (uint32_t row = 0; row < v.n_pages; ++row) sum[{stream, v.first_pos[row]}] += share[row] / all;
      if (head % shape.group + 1 != shape.group) continue;
      for (uint32_t row = 0; row < v.n_pages; ++row) {
        const double want = sum[{stream, v.first_pos[row]}], got = double{v.last_score[row]};
        if (std::fabs(got - want) > 1e-4 * (1.0 + want))
          fail_msg("page %u has %g, not %g", v.first_pos[row], got, want);
      }
    }
  };
  uint32_t n_checked = 0;
  sim.on_evict = [&](uint32_t stream, const StreamView& v, uint32_t victim, const RoomArgs& room) {
    if (room.phase != Phase::kDecode) return;
    assert_true(v.first_pos[victim] + kPageTokens + kRecent <= room.pos);
    const double least = sum[{stream, v.first_pos[victim]}];
    for (uint32_t row = 0; row < v.n_pages && v.first_pos[row] + kPageTokens + kRecent <= room.pos; ++row)
      assert_true((least <= sum[{stream, v.first_pos[row]}] * (1.0 + 1e-4)));
    ++n_checked;
  };
  sim.prefill(n_prompt);
  for (uint32_t stream = 0; stream < shape.n_layers * shape.n_kv_heads; ++stream) {
    const StreamView v = sim.kv.stream(stream);
    for (uint32_t row = 0; row < v.n_pages; ++row) sum[{stream, v.first_pos[row]}] = double{v.last_score[row]};
  }
  sim.steps(kTokens - n_prompt);
  assert_true(n_checked > 10);
}

void keyformer__adds_softmaxes_of_noisy_logits(void**) {
  for (const SimShape& shape : kShapes) {
    for (uint32_t n_prompt : {1u, 100u}) {
      check_sums(shape, {1, 1.0, 2.0, 4096}, n_prompt, {});  // the defaults: the temperature rises over the context
      check_sums(shape, {9, 1.0, 2.0, 200}, n_prompt, {{"seed", "9"}, {"tau_tokens", "200"}});
      check_sums(shape, {1, 4.0, 0.5, 300}, n_prompt, {{"tau_init", "4"}, {"tau_end", "0.5"}, {"tau_tokens", "300"}});
    }
  }
}

// Which pages stay depends on the seed, and on nothing else that is not the conversation.
void keyformer__noise_depends_on_the_seed_alone(void**) {
  const SimShape shape = {2, 2, 2, 64, 64, true};
  const Inputs inputs(shape, 400, 32);
  const auto pages = [&](const char* seed, uint32_t n_threads) {
    PolicySpec spec = {"keyformer", 128, 4096, 0, {{"skip_layers", "0"}, {"seed", seed}, {"tau_tokens", "100"}}};
    spec.n_threads = n_threads;
    Sim sim(cpu_backend(), inputs, spec);
    sim.prefill(50);
    sim.steps(350);
    return sim.all_pages();
  };
  const auto first = pages("1", 1);
  assert_true(pages("1", 2) == first);
  assert_true(pages("2", 1) != first);
}

// The prompt puts into the sums what it does under h2o; a policy object of a copy decides alike.
void keyformer__prompts_are_those_of_h2o(void**) {
  const SimShape shape = {2, 2, 3, 64, 32, true};
  const Inputs inputs(shape, 120, 33);
  Sim h2o(cpu_backend(), inputs, {"h2o", 256, 4096, 0, {{"skip_layers", "0"}, {"recent", "64"}}});
  Sim key(cpu_backend(), inputs, {"keyformer", 256, 4096, 0, {{"skip_layers", "0"}, {"recent", "64"}}});
  for (Sim* sim : {&h2o, &key}) sim->prefill(110);
  for (uint32_t stream = 0; stream < 4; ++stream) {
    const StreamView a = h2o.kv.stream(stream), b = key.kv.stream(stream);
    assert_int_equal(a.n_pages, b.n_pages);
    assert_memory_equal(a.last_score, b.last_score, a.n_pages * sizeof(float));
  }
}

void keyformer__memory_has_a_plateau(void**) {
  const Inputs inputs({3, 2, 4, 64, 512, true}, 400, 34);
  Sim sim(cpu_backend(), inputs, {"keyformer", 128, 4096, 0, {{"skip_layers", "0"}}});
  sim.prefill(20);
  sim.steps(110);
  for (uint32_t i = 0; i < 100; ++i) {
    sim.step();
    assert_int_equal(sim.kv.pages_resident(), 8 * 6);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(keyformer__adds_softmaxes_of_noisy_logits),
      cmocka_unit_test(keyformer__noise_depends_on_the_seed_alone),
      cmocka_unit_test(keyformer__prompts_are_those_of_h2o),
      cmocka_unit_test(keyformer__memory_has_a_plateau),
  };
  return cmocka_run_group_tests_name("policy_keyformer", tests, nullptr, nullptr);
}
