// Root mean square normalisation, defined.
// The squares are exact in f64 and summed in f64, so that the order of summation does not show in the f32 result.
// Paper: Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467, sec. 4.
#include <cmath>

#include "ops/rms_norm.h"

namespace weir::ref {

Status rms_norm(OpContext&, const RmsNormArgs& a) {
  for (size_t tok = 0; tok < a.n_tok; ++tok) {
    const float* x = a.x + tok * a.n;
    float* y = a.y + tok * a.n;
    double sum = 0.0;
    for (size_t i = 0; i < a.n; ++i) sum += double{x[i]} * double{x[i]};
    const auto inverse = static_cast<float>(1.0 / std::sqrt(sum / a.n + double{a.eps}));
    for (size_t i = 0; i < a.n; ++i) {
      const float normed = x[i] * inverse * a.weight[i];
      y[i] = a.accumulate ? y[i] + normed : normed;
    }
  }
  return {};
}

}  // namespace weir::ref
