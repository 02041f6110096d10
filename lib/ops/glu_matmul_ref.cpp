// Reference of glu_matmul: activation(Wg x) * (Wu x), in f64 up to the result.
#include "ops/dot_ref.h"
#include "ops/gate_ref.h"
#include "ops/glu_matmul.h"

namespace weir::ref {

Status glu_matmul(OpContext&, const GluMatmulArgs& a) {
  const auto bias_of = [](const float* bias, size_t r) { return bias != nullptr ? double{bias[r]} : 0.0; };
  for (size_t r = 0; r < a.gate.n_rows; ++r) {
    for (size_t t = 0; t < a.n_tok; ++t) {
      const double gate = dot_row(a.gate, r, a.x + t * a.gate.n_cols) + bias_of(a.gate_bias, r);
      const double up = dot_row(a.up, r, a.x + t * a.up.n_cols) + bias_of(a.up_bias, r);
      a.y[t * a.gate.n_rows + r] = static_cast<float>(gated(a.activation, gate, up));
    }
  }
  return {};
}

}  // namespace weir::ref
