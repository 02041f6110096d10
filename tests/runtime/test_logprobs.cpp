// runtime: log-probabilities of logits that are large, infinite or no numbers, and the order of the best.
#include "tests/cmocka_cpp.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/logprobs.h"

namespace {

using namespace weir;

LogProbs of(const std::vector<float>& logits, weir_token token, uint32_t n) {
  LogProbs probs;
  probs.compute(logits.data(), static_cast<uint32_t>(logits.size()), token, n);
  return probs;
}

void logprobs__sum_to_one(void**) {
  const LogProbs probs = of({1000, 1001, 999, 1001}, 2, 9);
  assert_int_equal(probs.n_top, 4);
  const weir_token order[] = {1, 3, 0, 2};
  double sum = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    assert_int_equal(probs.top[i].token, order[i]);
    sum += std::exp(probs.top[i].logprob);
  }
  assert_true(std::abs(sum - 1) < 1e-6);
  assert_true(probs.logprob == probs.top[3].logprob && std::abs(probs.top[0].logprob - probs.logprob - 2) < 1e-5);
}

void logprobs__the_best_in_order(void**) {
  std::vector<float> logits(300);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 101);
  for (const uint32_t n : {1u, 2u, 63u, 64u}) {
    const LogProbs probs = of(logits, 5, n);
    assert_int_equal(probs.n_top, n);
    for (uint32_t i = 1; i < n; ++i) {
      const auto [a, b] = std::pair(probs.top[i - 1].token, probs.top[i].token);
      const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
      assert_true(la > lb || (la == lb && a < b));
    }
    uint32_t n_better = 0;
    for (const float logit : logits) n_better += logit > logits[static_cast<size_t>(probs.top[n - 1].token)] ? 1 : 0;
    assert_true(n_better < n);
  }
}

void logprobs__odd_logits(void**) {
  const LogProbs one = of({INFINITY, 3, NAN}, 1, 3);
  assert_true(one.top[0].token == 0 && one.top[0].logprob == 0.0f && one.logprob == -INFINITY);
  assert_true(one.top[2].token == 2 && one.top[2].logprob == -INFINITY);
  const LogProbs two = of({INFINITY, 3, INFINITY}, 2, 1);
  assert_true(std::abs(two.logprob + std::log(2.0f)) < 1e-6f && two.top[0].token == 0);
  const LogProbs none = of({-INFINITY, NAN, 2}, 0, 0);
  assert_true(none.n_top == 0 && none.logprob == -INFINITY);
}

// What a device sends of all logits gives the same bits.
void logprobs__from_parts_and_the_best(void**) {
  for (const uint32_t n : {1u, 63u, 64u, 65u, 1000u}) {
    std::vector<float> logits(n);
    for (uint32_t i = 0; i < n; ++i) logits[i] = static_cast<float>((i * 7919) % 1013) * 0.02f - 5.0f;
    for (const float odd : {1.0f, NAN, INFINITY, -INFINITY}) {
      logits[n / 2] = odd;
      const weir_token token = static_cast<weir_token>(n / 3);
      const LogProbs want = of(logits, token, 20);
      LogitPart parts[kLogitParts];
      const uint32_t rows = logit_part_rows(n);
      for (uint32_t part = 0, first = 0; part < kLogitParts; ++part, first = std::min(first + rows, n))
        parts[part] = logit_part(logits.data() + first, std::min(rows, n - first));
      int32_t ids[20];
      float best[20];
      for (uint32_t i = 0; i < want.n_top; ++i) {
        ids[i] = want.top[i].token;
        best[i] = logits[static_cast<size_t>(ids[i])];
      }
      LogProbs got;
      got.compute(ids, best, want.n_top, parts, logits[static_cast<size_t>(token)]);
      assert_int_equal(got.n_top, want.n_top);
      assert_memory_equal(&got.logprob, &want.logprob, sizeof(float));
      for (uint32_t i = 0; i < want.n_top; ++i) {
        assert_int_equal(got.top[i].token, want.top[i].token);
        assert_memory_equal(&got.top[i].logprob, &want.top[i].logprob, sizeof(float));
      }
      double sum = 0;
      for (uint32_t i = 0; i < n; ++i) sum += std::exp(of(logits, static_cast<weir_token>(i), 0).logprob);
      assert_true(std::abs(sum - 1) < 1e-5);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(logprobs__sum_to_one),
      cmocka_unit_test(logprobs__the_best_in_order),
      cmocka_unit_test(logprobs__odd_logits),
      cmocka_unit_test(logprobs__from_parts_and_the_best),
  };
  return cmocka_run_group_tests_name("runtime/logprobs", tests, nullptr, nullptr);
}
