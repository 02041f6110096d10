// A row of a weight matrix times a vector, for the references of the matrix ops.
#pragma once

#include <algorithm>

#include "quant/weight_type.h"

namespace weir::ref {

// Sum over the columns, ascending, of the decoded weight times x, in f64. Decodes 256 columns at a time: whole blocks
// of every type.
inline double dot_row(const Weight& w, size_t row, const float* x) {
  const WeightTypeInfo& info = weight_type_info(w.type);
  double sum = 0;
  for (size_t first = 0; first < w.n_cols; first += 256) {
    float weights[256];
    const size_t n = std::min<size_t>(256, w.n_cols - first);
    info.decode(w.data + row * w.row_bytes + first / info.block_weights * info.block_bytes, weights, n);
    for (size_t k = 0; k < n; ++k) sum += double{weights[k]} * double{x[first + k]};
  }
  return sum;
}

}  // namespace weir::ref
