// Log-probabilities of tokens.
#include "runtime/logprobs.h"

#include <algorithm>

namespace weir {
namespace {

float number(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

// From logits to logarithms of probabilities.
class LogScale {
 public:
  explicit LogScale(const LogitPart* parts) {
    for (uint32_t i = 0; i < kLogitParts; ++i) best_ = std::max(best_, parts[i].best);
    double sum = 0.0;  // of probabilities, where that of the best is 1: infinite ones share all of it
    for (uint32_t i = 0; i < kLogitParts; ++i) sum += parts[i].sum * std::exp(double{below(parts[i].best)});
    log_sum_ = std::log(sum);
  }
  float of(float logit) const { return static_cast<float>(below(logit) - log_sum_); }

 private:
  float below(float logit) const { return logit == best_ ? 0.0f : logit - best_; }
  float best_ = -INFINITY;
  double log_sum_ = 0.0;
};

}  // namespace

LogitPart logit_part(const float* logits, uint32_t n) {
  float best = -INFINITY;
  for (uint32_t i = 0; i < n; ++i) best = std::max(best, number(logits[i]));
  double sum = 0.0;
  const auto below = [best](float logit) { return logit == best ? 0.0f : logit - best; };
  for (uint32_t i = 0; i < n; ++i) sum += std::exp(below(number(logits[i])));
  return {best, static_cast<float>(sum)};
}

void LogProbs::compute(const float* logits, uint32_t vocab_size, weir_token token, uint32_t n) {
  n_top = std::min(n, vocab_size);
  // `top` has logits until their sum is known.
  uint32_t n_found = 0;
  for (uint32_t i = 0; i < vocab_size && n_top != 0; ++i) {
    const float logit = number(logits[i]);
    if (n_found == n_top && logit <= top[n_top - 1].logprob) continue;
    uint32_t at = n_found < n_top ? n_found++ : n_top - 1;
    for (; at != 0 && top[at - 1].logprob < logit; --at) top[at] = top[at - 1];
    top[at] = {static_cast<weir_token>(i), logit};
  }
  LogitPart parts[kLogitParts];
  const uint32_t part_rows = logit_part_rows(vocab_size);
  for (uint32_t part = 0, first = 0; part < kLogitParts; ++part, first = std::min(first + part_rows, vocab_size))
    parts[part] = logit_part(logits + first, std::min(part_rows, vocab_size - first));
  const LogScale scale(parts);
  for (uint32_t i = 0; i < n_top; ++i) top[i].logprob = scale.of(top[i].logprob);
  logprob = scale.of(number(logits[token]));
}

void LogProbs::compute(const int32_t* ids, const float* logits, uint32_t n, const LogitPart* parts, float logit) {
  const LogScale scale(parts);
  n_top = n;
  for (uint32_t i = 0; i < n; ++i) top[i] = {ids[i], scale.of(number(logits[i]))};
  logprob = scale.of(number(logit));
}

}  // namespace weir
