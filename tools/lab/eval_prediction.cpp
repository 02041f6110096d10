// Predictions in f64; see eval_prediction.h.
#include "eval_prediction.h"

#include <algorithm>
#include <cmath>

namespace weir_cli {

Prediction prediction(const float* logits, size_t n) {
  Prediction result;
  result.best = static_cast<size_t>(std::max_element(logits, logits + n) - logits);
  const double most = logits[result.best];
  result.p.resize(n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += result.p[i] = std::exp(logits[i] - most);
  const double log_sum = most + std::log(sum);
  if (!std::isfinite(log_sum)) throw std::runtime_error("the model's logits are not all numbers");
  result.log_p.resize(n);
  for (size_t i = 0; i < n; ++i) {
    result.p[i] /= sum;
    result.log_p[i] = logits[i] - log_sum;
  }
  return result;
}

Prediction predict(weir_session* session) {
  const float* logits = nullptr;
  uint32_t n = 0;
  check(weir_session_logits(session, &logits, &n), "cannot read the logits");
  return prediction(logits, n);
}

double kl_divergence(const Prediction& p, const Prediction& q) {
  double sum = 0;
  for (size_t i = 0; i < p.p.size(); ++i) sum += p.p[i] * (p.log_p[i] - q.log_p[i]);
  return std::max(0.0, sum);
}

}  // namespace weir_cli
