// runtime: the sampler's order of steps, its distribution, ties and broken logits.
#include "tests/cmocka_cpp.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/sampler.h"

namespace {

using namespace weir;

struct Fixture {
  std::vector<std::byte> memory;
  Sampler sampler;
  explicit Fixture(uint32_t vocab, weir_sampling_options o) {
    Arena measure;
    Arenas sizes = Arenas::all_in(measure);
    sampler.set_vocabulary(vocab);
    sampler.lay_out(sizes);
    memory.resize(measure.used());
    Arena arena(memory.data(), memory.size());
    Arenas arenas = Arenas::all_in(arena);
    sampler.lay_out(arenas);
    assert_true(check_sampling(o, vocab).ok());
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

// A set whose probability is exactly P is large enough: nothing more is kept. Powers of two make the sums exact.
void sampler__top_p_stops_at_an_exact_sum(void**) {
  const std::vector<float> logits = {0.0f, 0.0f, 0.0f, 0.0f};
  for (const int n_kept : {1, 2, 3}) {
    weir_sampling_options o = options(1);
    o.top_p = 0.25f * static_cast<float>(n_kept);
    Fixture f(4, o);
    int count[4] = {};
    for (int i = 0; i < 2000; ++i) ++count[f.draw(logits)];
    for (int token = 0; token < 4; ++token) assert_true((count[token] > 0) == (token < n_kept));
  }
}

// A token that is exactly min_p times as probable as the best one stays. The exponential is the sampler's, and taken
// when the test runs: a compiler may round its own differently.
void sampler__min_p_keeps_its_border(void**) {
  volatile float below = -1.0f;
  weir_sampling_options o = options(1);
  o.min_p = std::exp(below);
  for (const bool keeps : {true, false}) {
    Fixture f(2, o);
    int count[2] = {};
    for (int i = 0; i < 2000; ++i) ++count[f.draw({0.0f, keeps ? -1.0f : -1.0001f})];
    assert_true(count[0] > 0 && (count[1] > 0) == keeps);
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

// Presence counts once, frequency each time; both after the repetition penalty, which looks at the sign.
void sampler__presence_and_frequency(void**) {
  weir_sampling_options o = options(0);
  o.presence_penalty = o.repeat_penalty = 1;
  o.repeat_last_n = 64;
  Fixture f(3, o);
  for (const weir_token token : {0, 0, 1}) f.sampler.accept(token);
  assert_int_equal(f.draw({4, 3.5f, 2.9f}), 0);
  assert_int_equal(f.draw({4, 3.5f, 3.1f}), 2);
  o.frequency_penalty = 0.5f;  // 0: 2 lower, 1: 1.5 lower
  f.sampler.set(o);
  assert_int_equal(f.draw({4, 3.6f, 1}), 1);
  assert_int_equal(f.draw({4, 3.4f, 1}), 0);
  o.repeat_penalty = 2;  // 0: 4 / 2 - 2
  f.sampler.set(o);
  assert_int_equal(f.draw({4, 2.9f, 0.1f}), 2);
  assert_int_equal(f.draw({4, 2.9f, -0.1f}), 0);
  weir_token_bias bias[] = {{1, 3}, {1, -1}, {2, -100}};  // 1: (2.9 + 2) / 2 - 1.5
  o.bias = bias;
  o.n_bias = 3;
  f.sampler.set(o);
  assert_int_equal(f.draw({4, 2.9f, 9}), 1);
  const weir_token none[] = {0, 1};
  const float logits[] = {4, 2.9f, 9};
  weir_token token = -1;
  f.sampler.forbid(none);
  assert_int_equal(f.sampler.sample(logits, token).code(), WEIR_ERR_STATE);
  assert_int_equal(token, -1);
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
  a.sampler.reset();
  for (int i = 0; i < 50; ++i) assert_int_equal(a.draw(logits), drawn[static_cast<size_t>(i)]);
}

// Ids in the order in which a device gives the best logits.
std::vector<int32_t> by_logit(const std::vector<float>& logits) {
  const auto value = [&](int32_t id) {
    const float logit = logits[static_cast<size_t>(id)];
    return std::isnan(logit) ? -INFINITY : logit;
  };
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return value(a) > value(b); });
  return ids;
}

// Logits of few different values, so that many are equal, some of them infinite or NaN.
std::vector<float> odd_logits(std::mt19937& random, uint32_t n) {
  const uint32_t kind = random() % 5;
  std::vector<float> logits(n);
  for (float& logit : logits) {
    logit = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0.01f;
    if (kind != 0) logit = std::round(logit);
    const uint32_t odd = random() % 100;
    if (kind == 2 && odd < 30) logit = odd % 2 == 0 ? NAN : -INFINITY;
    if (kind == 3 && odd < 4) logit = INFINITY;
    if (kind == 4 && odd < 97) logit = odd % 2 == 0 ? NAN : -INFINITY;
    if (odd == 99) logit = -0.0f;
  }
  if (random() % 50 == 0) std::fill(logits.begin(), logits.end(), random() % 2 == 0 ? NAN : -INFINITY);
  return logits;
}

weir_sampling_options odd_options(std::mt19937& random, std::vector<weir_token_bias>& bias, uint32_t vocab) {
  weir_sampling_options o = options(random() % 4 == 0 ? 0.0f : 0.2f + static_cast<float>(random() % 30) * 0.1f);
  o.top_k = random() % 3 == 0 ? 0 : random() % 60;
  o.top_p = random() % 2 == 0 ? 0.0f : 0.05f + static_cast<float>(random() % 20) * 0.05f;
  o.top_p = std::min(o.top_p, 1.0f);
  o.min_p = random() % 3 == 0 ? 0.05f : 0.0f;
  o.repeat_penalty = std::vector<float>{0.0f, 1.0f, 1.1f, 2.0f, 0.5f}[random() % 5];
  o.repeat_last_n = random() % 40;
  o.seed = random();
  // A penalty below 0 and a bias above it may raise a token; most rounds have none, so that candidates are enough.
  const auto penalty = [&] { return std::vector<float>{0.0f, 0.0f, 0.5f, 2.0f, -0.3f}[random() % 5]; };
  if (random() % 2 == 0) o.presence_penalty = penalty();
  if (random() % 2 == 0) o.frequency_penalty = penalty();
  const bool raises = random() % 4 == 0;
  bias.resize(random() % 2 == 0 ? random() % 10 : 0);
  for (weir_token_bias& b : bias) {
    b = {static_cast<weir_token>(random() % vocab), std::vector<float>{-100.0f, -1.0f, -0.25f, 0.0f}[random() % 4]};
    if (raises) b.bias = 3.0f;
  }
  o.bias = bias.data();
  o.n_bias = static_cast<uint32_t>(bias.size());
  return o;
}

// A mask of the vocabulary, with at least one token, or none.
std::vector<uint32_t> odd_mask(std::mt19937& random, uint32_t vocab) {
  if (random() % 2 == 0) return {};
  std::vector<uint32_t> words((vocab + 31) / 32, 0);
  const uint32_t most = random() % 3 == 0 ? 1 + random() % 12 : vocab;
  for (uint32_t i = 0; i < most; ++i) {
    const uint32_t token = random() % vocab;
    words[token / 32] |= 1u << (token % 32);
  }
  return words;
}

// The definition: all tokens in descending order, cut, and walked along until the random point.
class SortedDraw {
 public:
  explicit SortedDraw(const weir_sampling_options& o) : options_(o), random_(o.seed) {}
  weir_token draw(const std::vector<float>& logits) {
    std::vector<uint32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    if (options_.top_k != 0 && options_.top_k < order.size()) order.resize(options_.top_k);
    std::vector<double> part;
    for (const uint32_t id : order) part.push_back(std::exp((logits[id] - logits[order[0]]) / options_.temperature));
    if (options_.top_p != 0.0f) keep(part, options_.top_p * std::accumulate(part.begin(), part.end(), 0.0));
    while (part.back() < options_.min_p) part.pop_back();
    const double point = uniform() * std::accumulate(part.begin(), part.end(), 0.0);
    keep(part, std::nextafter(point, INFINITY));
    return static_cast<weir_token>(order[part.size() - 1]);
  }

 private:
  static void keep(std::vector<double>& part, double target) {
    double sum = 0.0;
    for (size_t i = 0; i < part.size(); ++i) {
      sum += part[i];
      if (sum >= target) part.resize(i + 1);
    }
  }
  double uniform() {  // SplitMix64
    uint64_t z = (random_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
  }
  weir_sampling_options options_;
  uint64_t random_;
};

// Distributions from flat, where most tokens have to be looked at, to sharp, with ties and tokens that are ruled out.
// Sums have another order than those of the definition, so a draw in a million may differ by rounding.
void sampler__draws_as_a_sorted_list_does(void**) {
  std::mt19937 random(3);
  int n_draws = 0, n_other = 0;
  for (int round = 0; round < 60; ++round) {
    const uint32_t vocab = round % 3 == 0 ? 20'000 : 1 + random() % 3'000;
    weir_sampling_options o = options(0.3f + static_cast<float>(random() % 20) * 0.1f);
    o.top_k = random() % 3 == 0 ? 1 + random() % vocab : 0;
    o.top_p = random() % 2 == 0 ? 0.1f + static_cast<float>(random() % 10) * 0.1f : 0.0f;
    o.top_p = std::min(o.top_p, 1.0f);
    o.min_p = random() % 3 == 0 ? 0.02f : 0.0f;
    o.seed = random();
    const float width = std::vector<float>{0.0f, 0.1f, 1.0f, 4.0f, 20.0f}[random() % 5];
    std::vector<float> logits(vocab);
    for (float& logit : logits) {
      logit = width * static_cast<float>(random() % 1000) * 0.001f;
      if (random() % 50 == 0) logit = -INFINITY;
    }
    logits[random() % vocab] = width;
    Fixture f(vocab, o);
    SortedDraw sorted(o);
    for (int i = 0; i < 20; ++i, ++n_draws) n_other += f.draw(logits) != sorted.draw(logits) ? 1 : 0;
  }
  assert_int_equal(n_draws, 1200);
  assert_in_range(n_other, 0, 2);
}

// What a device tells about these logits, and what is drawn from it; -1: all logits are needed.
struct FromDevice {
  std::vector<int32_t> ids, asked = std::vector<int32_t>(Sampler::kMaxCandidates);
  std::vector<float> best, asked_logits;
  uint32_t n_allowed = 0, n_needed = 0;

  weir_token draw(Sampler& sampler, const std::vector<float>& logits, const uint32_t* allowed, uint32_t n_more) {
    for (const int32_t id : by_logit(logits)) {
      if (is_allowed(allowed, static_cast<uint32_t>(id))) ids.push_back(id);
    }
    n_allowed = static_cast<uint32_t>(ids.size());
    n_needed = sampler.candidates_needed(n_allowed);
    if (n_needed == 0) return -1;
    ids.resize(std::min(n_needed + n_more, n_allowed));
    for (const int32_t id : ids) best.push_back(logits[static_cast<size_t>(id)]);
    asked.resize(sampler.asked_tokens(asked.data()));
    for (const int32_t id : asked) asked_logits.push_back(logits[static_cast<size_t>(id)]);
    return sampler.sample_candidates({ids.data(), best.data(), static_cast<uint32_t>(ids.size())},
                                     ids.size() == n_allowed,
                                     {asked.data(), asked_logits.data(), static_cast<uint32_t>(asked.size())}, allowed);
  }
};

// The best logits alone, of those that are allowed, give the tokens that all of them give, draw after draw, so the
// random states are the same too.
void sampler__candidates_draw_as_all_logits_do(void**) {
  std::mt19937 random(7);
  uint32_t n_compared = 0, n_masked = 0, n_raised = 0, n_tails = 0, n_errors = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t vocab = 40 + random() % (round % 4 != 0 ? 300 : 1500);
    std::vector<weir_token_bias> bias;
    const weir_sampling_options o = odd_options(random, bias, vocab);
    Fixture all(vocab, o), few(vocab, o);
    std::vector<weir_token> forbidden(random() % 3 == 0 ? random() % 4 : 0);
    for (weir_token& token : forbidden) token = static_cast<weir_token>(random() % vocab);
    all.sampler.forbid(forbidden);
    few.sampler.forbid(forbidden);
    for (int draw = 0; draw < 8; ++draw) {
      const std::vector<float> logits = odd_logits(random, vocab);
      const std::vector<uint32_t> mask = odd_mask(random, vocab);
      const uint32_t* const allowed = mask.empty() ? nullptr : mask.data();
      FromDevice device;
      weir_token want = -1, got = device.draw(few.sampler, logits, allowed, random() % 3 == 0 ? random() % 64 : 0);
      assert_true(device.n_needed < vocab && device.n_needed <= device.n_allowed);
      const bool was_enough = got >= 0;
      const weir_status status = all.sampler.sample(logits.data(), want, allowed).code();
      if (!was_enough) assert_int_equal(few.sampler.sample(logits.data(), got, allowed).code(), status);
      if (want != got) fail_msg("round %d, draw %d: %d, not %d", round, draw, got, want);
      assert_true((status == WEIR_OK) == (want >= 0));
      n_compared += was_enough ? 1 : 0;
      n_masked += was_enough && allowed != nullptr ? 1 : 0;
      n_raised += was_enough && !device.asked.empty() ? 1 : 0;
      n_tails += was_enough && o.top_k == 0 && o.temperature > 0 && device.ids.size() < device.n_allowed ? 1 : 0;
      n_errors += status != WEIR_OK ? 1 : 0;
      // Recent tokens are often among the best, as in a conversation.
      const weir_token next = status == WEIR_OK && random() % 2 == 0 ? want : static_cast<weir_token>(random() % vocab);
      all.sampler.accept(next);
      few.sampler.accept(next);
    }
  }
  assert_true(n_compared > 10000 && n_masked > 5000 && n_raised > 5000 && n_tails > 30 && n_errors > 100);
}

// When few tokens may be drawn, all are listed, so no cut is needed. Where all may, min_p can be one.
void sampler__candidates_of_the_whole_vocabulary(void**) {
  constexpr uint32_t kVocab = 2000;
  weir_sampling_options o = options(1);
  Fixture f(kVocab, o);
  assert_int_equal(f.sampler.candidates_needed(kVocab), 0);
  assert_int_equal(f.sampler.candidates_needed(1025), 0);
  assert_int_equal(f.sampler.candidates_needed(1024), 1024);
  o.min_p = 0.05f;
  o.top_p = 0.9f;  // of the sum of all
  f.sampler.set(o);
  assert_int_equal(f.sampler.candidates_needed(kVocab), 0);
  o.top_p = 1.0f;
  f.sampler.set(o);
  const uint32_t n = f.sampler.candidates_needed(kVocab);
  assert_true(n >= 64 && n <= 1024);
  // The n-th best is just beyond the border, or within it.
  for (const bool decides : {true, false}) {
    std::vector<float> logits(kVocab, std::log(0.05f) + (decides ? -0.01f : 0.01f));
    logits[7] = 0.0f;
    FromDevice device;
    assert_int_equal(device.draw(f.sampler, logits, nullptr, 0), decides ? 7 : -1);
  }
}

void sampler__how_many_candidates_are_needed(void**) {
  weir_sampling_options o = options(1);
  o.top_k = 10;
  Fixture f(100, o);
  int32_t asked[Sampler::kMaxCandidates];
  assert_int_equal(f.sampler.candidates_needed(100), 10);
  for (int i = 0; i < 7; ++i) f.sampler.accept(i);
  assert_int_equal(f.sampler.candidates_needed(100), 10);
  const auto needed = [&](float temperature, uint32_t top_k, float penalty, uint32_t last_n) {
    o.temperature = temperature;
    o.top_k = top_k;
    o.repeat_penalty = penalty;
    o.repeat_last_n = last_n;
    f.sampler.set(o);
    return f.sampler.candidates_needed(100);
  };
  assert_int_equal(needed(1, 10, 1.5f, 64), 17);  // each of the seven may fall behind
  assert_int_equal(needed(1, 10, 1.5f, 3), 13);
  assert_int_equal(needed(0, 0, 1.5f, 3), 4);  // the best of those that are left
  assert_int_equal(needed(0, 50, 1.5f, 3), 4);
  assert_int_equal(needed(1, 0, 1, 64), 0);
  assert_int_equal(needed(0, 10, 1, 64), 0);  // greedy
  assert_int_equal(f.sampler.asked_tokens(asked), 0);
  assert_int_equal(needed(1, 10, 0.5f, 64), 17);  // any of the seven may come up
  assert_int_equal(f.sampler.asked_tokens(asked), 7);
  for (int i = 0; i < 7; ++i) assert_int_equal(asked[i], i);
  assert_int_equal(needed(1, 99, 1, 64), 99);
  assert_int_equal(needed(1, 100, 1, 64), 0);
  assert_int_equal(needed(1, 93, 1.5f, 64), 0);
  assert_int_equal(needed(1, 4000000000u, 1.5f, 64), 0);
  const weir_token ends[] = {3, 4};
  weir_token_bias bias[] = {{5, -1.0f}, {6, -100.0f}, {7, 0.0f}};
  f.sampler.forbid(ends);
  assert_int_equal(needed(0, 0, 1, 64), 3);  // both may be the best
  assert_int_equal(needed(1, 10, 1, 64), 12);
  o.bias = bias;
  o.n_bias = 3;
  assert_int_equal(needed(1, 10, 1.5f, 3), 18);
  f.sampler.forbid({});
  assert_int_equal(needed(1, 10, 1, 64), 13);
  o.frequency_penalty = 0.5f;
  assert_int_equal(needed(1, 10, 1, 64), 20);
  o.presence_penalty = -0.5f;  // may bring any of the seven up
  assert_int_equal(needed(1, 10, 1, 64), 20);
  assert_int_equal(f.sampler.asked_tokens(asked), 8);  // three of them have a bias, too, and one other has
  assert_int_equal(asked[7], 7);
  o.presence_penalty = 0.5f;
  bias[2].bias = 0.5f;
  assert_int_equal(needed(1, 10, 1, 64), 20);
  assert_int_equal(f.sampler.asked_tokens(asked), 8);
  assert_int_equal(f.sampler.candidates_needed(15), 15);
  assert_int_equal(f.sampler.candidates_needed(1), 1);
}

// More changes than there is room for take all logits.
void sampler__too_many_changes(void**) {
  weir_sampling_options o = options(1);
  o.top_k = 10;
  o.repeat_penalty = 0.5f;
  o.repeat_last_n = Sampler::kMaxCandidates + 1;
  Fixture f(5000, o);
  for (uint32_t i = 0; i < Sampler::kMaxCandidates - 10; ++i) f.sampler.accept(static_cast<weir_token>(i % 9));
  assert_int_equal(f.sampler.candidates_needed(5000), Sampler::kMaxCandidates);
  int32_t asked[Sampler::kMaxCandidates];
  assert_int_equal(f.sampler.asked_tokens(asked), 9);
  f.sampler.accept(9);
  assert_int_equal(f.sampler.candidates_needed(5000), 0);
  assert_int_equal(f.sampler.candidates_needed(20), 20);
  for (uint32_t i = 0; i < 20; ++i) f.sampler.accept(9);
  assert_int_equal(f.sampler.candidates_needed(20), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sampler__greedy_takes_the_lowest_id_on_a_tie),
      cmocka_unit_test(sampler__no_number_is_an_error),
      cmocka_unit_test(sampler__frequencies_follow_probabilities),
      cmocka_unit_test(sampler__temperature_sharpens),
      cmocka_unit_test(sampler__cuts_keep_what_they_say),
      cmocka_unit_test(sampler__top_p_stops_at_an_exact_sum),
      cmocka_unit_test(sampler__min_p_keeps_its_border),
      cmocka_unit_test(sampler__penalty_hits_recent_tokens_once),
      cmocka_unit_test(sampler__presence_and_frequency),
      cmocka_unit_test(sampler__seed_and_restart),
      cmocka_unit_test(sampler__draws_as_a_sorted_list_does),
      cmocka_unit_test(sampler__candidates_draw_as_all_logits_do),
      cmocka_unit_test(sampler__candidates_of_the_whole_vocabulary),
      cmocka_unit_test(sampler__how_many_candidates_are_needed),
      cmocka_unit_test(sampler__too_many_changes),
  };
  return cmocka_run_group_tests_name("runtime_sampler", tests, nullptr, nullptr);
}
