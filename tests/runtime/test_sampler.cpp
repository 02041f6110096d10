// runtime: the sampler's order of steps, its distribution, ties and broken logits.
#include "tests/cmocka_cpp.h"

#include <cmath>
#include <vector>

#include "runtime/sampler.h"

namespace {

using namespace weir;

struct Fixture {
  std::vector<std::byte> memory;
  Sampler sampler;
  explicit Fixture(uint32_t vocab, weir_sampling_options o) {
    Arena measure;
    sampler.lay_out(vocab, measure);
    memory.resize(measure.used());
    Arena arena(memory.data(), memory.size());
    sampler.lay_out(vocab, arena);
    assert_true(check_sampling(o).ok());
    sampler.set(o);
  }
  weir_token draw(const std::vector<float>& logits) {
    weir_token token = -1;
    assert_true(sampler.sample(logits.data(), token).ok());
    return token;
  }
};

weir_sampling_options options(float temperature) {
  weir_sampling_options o = WEIR_SAMPLING_OPTIONS_INIT;
  o.temperature = temperature;
  return o;
}

void sampler__greedy_takes_the_lowest_id_on_a_tie(void**) {
  Fixture f(4, options(0));
  assert_int_equal(f.draw({1, 3, 3, 2}), 1);
  assert_int_equal(f.draw({NAN, -5, NAN, -6}), 1);
}

void sampler__no_number_is_an_error(void**) {
  for (float temperature : {0.0f, 1.0f}) {
    Fixture f(2, options(temperature));
    const float logits[] = {NAN, NAN};
    weir_token token = -1;
    assert_int_equal(f.sampler.sample(logits, token).code(), WEIR_ERR_FORMAT);
    assert_int_equal(token, -1);
  }
}

void sampler__frequencies_follow_probabilities(void**) {
  Fixture f(3, options(1));
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  int count[3] = {};
  for (int i = 0; i < 30000; ++i) ++count[f.draw(logits)];
  // Three standard deviations of 30000 draws are 0.9 %.
  assert_true(std::abs(count[0] / 30000.0 - 0.2) < 0.009 && std::abs(count[1] / 30000.0 - 0.5) < 0.009);
}

void sampler__temperature_sharpens(void**) {
  Fixture f(2, options(0.5f));
  const std::vector<float> logits = {std::log(0.25f), std::log(0.75f)};  // squared: 1 to 9
  int first = 0;
  for (int i = 0; i < 20000; ++i) first += f.draw(logits) == 0 ? 1 : 0;
  assert_true(std::abs(first / 20000.0 - 0.1) < 0.007);
}

void sampler__cuts_keep_what_they_say(void**) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  weir_sampling_options top_k = options(1), top_p = options(1), min_p = options(1);
  top_k.top_k = 2;
  top_p.top_p = 0.65f;  // 0.4 is not enough, 0.4 + 0.3 is
  min_p.min_p = 0.6f;   // 0.24 and up
  for (const auto& o : {top_k, top_p, min_p}) {
    Fixture f(4, o);
    int count[4] = {};
    for (int i = 0; i < 2000; ++i) ++count[f.draw(logits)];
    assert_true(count[0] > 0 && count[1] > 0);
    assert_int_equal(count[2] + count[3], 0);
  }
}

void sampler__penalty_hits_recent_tokens_once(void**) {
  weir_sampling_options o = options(0);
  o.repeat_penalty = 2;
  o.repeat_last_n = 2;
  Fixture f(3, o);
  assert_int_equal(f.draw({4, 3, -1}), 0);
  f.sampler.accept(0);
  f.sampler.accept(0);  // twice the same: halved once, 4 -> 2
  assert_int_equal(f.draw({4, 3, -1}), 1);
  assert_int_equal(f.draw({4, 1.9f, -1}), 0);
  f.sampler.set(o);  // other options later keep what is recent
  assert_int_equal(f.draw({4, 3, -1}), 1);
  f.sampler.accept(2);
  f.sampler.accept(2);  // 0 is out of the last two
  assert_int_equal(f.draw({4, 3, -1}), 0);
}

void sampler__seed_and_restart(void**) {
  weir_sampling_options o = options(1);
  o.seed = 42;
  Fixture a(64, o), b(64, o);
  std::vector<float> logits(64, 0.0f);
  std::vector<weir_token> drawn;
  for (int i = 0; i < 50; ++i) {
    drawn.push_back(a.draw(logits));
    assert_int_equal(drawn.back(), b.draw(logits));
  }
  a.sampler.restart();
  for (int i = 0; i < 50; ++i) assert_int_equal(a.draw(logits), drawn[static_cast<size_t>(i)]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sampler__greedy_takes_the_lowest_id_on_a_tie),
      cmocka_unit_test(sampler__no_number_is_an_error),
      cmocka_unit_test(sampler__frequencies_follow_probabilities),
      cmocka_unit_test(sampler__temperature_sharpens),
      cmocka_unit_test(sampler__cuts_keep_what_they_say),
      cmocka_unit_test(sampler__penalty_hits_recent_tokens_once),
      cmocka_unit_test(sampler__seed_and_restart),
  };
  return cmocka_run_group_tests_name("runtime_sampler", tests, nullptr, nullptr);
}
