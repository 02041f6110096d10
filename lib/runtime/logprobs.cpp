// Log-probabilities of tokens.
#include "runtime/logprobs.h"

#include <algorithm>

namespace weir {
namespace {

float number(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

}  // namespace

void LogProbs::compute(const float* logits, uint32_t vocab_size, weir_token token, uint32_t n) {
  n_top = std::min(n, vocab_size);
  // `top` has logits until their sum is known.
  uint32_t n_found = 0;
  float best = -INFINITY;
  for (uint32_t i = 0; i < vocab_size; ++i) {
    const float logit = number(logits[i]);
    best = std::max(best, logit);
    if (n_found == n_top && (n_top == 0 || logit <= top[n_top - 1].logprob)) continue;
    uint32_t at = n_found < n_top ? n_found++ : n_top - 1;
    for (; at != 0 && top[at - 1].logprob < logit; --at) top[at] = top[at - 1];
    top[at] = {static_cast<weir_token>(i), logit};
  }
  double sum = 0.0;  // of probabilities, where that of the best is 1: infinite ones share all of it
  const auto below = [best](float logit) { return logit == best ? 0.0f : logit - best; };
  for (uint32_t i = 0; i < vocab_size; ++i) sum += std::exp(below(number(logits[i])));
  const double log_sum = std::log(sum);
  const auto log_of = [&](float logit) { return static_cast<float>(below(logit) - log_sum); };
  for (uint32_t i = 0; i < n_top; ++i) top[i].logprob = log_of(top[i].logprob);
  logprob = log_of(number(logits[token]));
}

}  // namespace weir
