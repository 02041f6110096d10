// What a session predicts after its last token, as probabilities in f64, and how far two predictions are from each
// other.
#pragma once

#include <cstddef>
#include <vector>

#include "weir_cpp.h"

namespace weir_cli {

struct Prediction {
  size_t best = 0;            // the most probable token, the lowest id on a tie, as greedy decoding takes it
  std::vector<double> p;      // [vocab_size] softmax of the logits
  std::vector<double> log_p;  // [vocab_size] its logarithm
};
// Throws std::runtime_error when the logits are not all numbers.
Prediction prediction(const float* logits, size_t n);
Prediction predict(weir_session* session);

// KL(p || q) in nats; at least 0.
double kl_divergence(const Prediction& p, const Prediction& q);

}  // namespace weir_cli
