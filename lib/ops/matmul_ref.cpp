// Reference of matmul: dot products of decoded rows with the inputs, in f64, in the order of the columns.
#include "ops/dot_ref.h"
#include "ops/matmul.h"

namespace weir::ref {

Status matmul(OpContext&, const MatmulArgs& a) {
  for (size_t i = 0; i < a.n_parts; ++i) {
    const MatmulPart& part = a.part[i];
    for (size_t r = 0; r < part.w.n_rows; ++r) {
      for (size_t t = 0; t < a.n_tok; ++t) {
        float& y = part.y[t * part.w.n_rows + r];
        const double before = part.accumulate ? double{y} : 0.0;
        const double bias = part.bias != nullptr ? double{part.bias[r]} : 0.0;
        y = static_cast<float>(before + dot_row(part.w, r, a.x + t * part.w.n_cols) + bias);
      }
    }
  }
  return {};
}

}  // namespace weir::ref
