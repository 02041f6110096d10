// Reference of glu_matmul: silu(Wg x) * (Wu x), in f64 up to the result.
#include <cmath>

#include "ops/dot_ref.h"
#include "ops/ops.h"

namespace weir::ref {

Status glu_matmul(OpContext&, const GluMatmulArgs& a) {
  for (size_t r = 0; r < a.gate.n_rows; ++r) {
    for (size_t t = 0; t < a.n_tok; ++t) {
      const double gate = dot_row(a.gate, r, a.x + t * a.gate.n_cols);
      const double up = dot_row(a.up, r, a.x + t * a.up.n_cols);
      a.y[t * a.gate.n_rows + r] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
  return {};
}

}  // namespace weir::ref
