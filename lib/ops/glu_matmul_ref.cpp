// Reference of glu_matmul: activation(Wg x) * (Wu x), in f64 up to the result.
#include <cmath>
#include <numbers>

#include "ops/dot_ref.h"
#include "ops/ops.h"

namespace weir::ref {
namespace {

// Both activations are g * sigmoid of something; GELU written with tanh would lose the last digits for large negative
// inputs.
double activated(Gate kind, double g) {
  const double logit = kind == Gate::kSilu ? g : 2.0 * std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g);
  return g / (1.0 + std::exp(-logit));
}

}  // namespace

Status glu_matmul(OpContext&, const GluMatmulArgs& a) {
  if (a.activation == Gate::kClamped) return fail(WEIR_ERR_UNSUPPORTED, "glu_matmul: clamped gates");
  for (size_t r = 0; r < a.gate.n_rows; ++r) {
    for (size_t t = 0; t < a.n_tok; ++t) {
      const double gate = dot_row(a.gate, r, a.x + t * a.gate.n_cols);
      const double up = dot_row(a.up, r, a.x + t * a.up.n_cols);
      a.y[t * a.gate.n_rows + r] = static_cast<float>(activated(a.activation, gate) * up);
    }
  }
  return {};
}

}  // namespace weir::ref
