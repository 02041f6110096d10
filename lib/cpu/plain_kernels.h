// The GEMV in plain C++, for machines where Highway has no vectors of a size known at compile time. Rows are decoded by
// the weight types' plain decoders, 256 columns at a time. Complete but slow.
#pragma once

#include <algorithm>

#include "cpu/matmul_kernels.h"

namespace weir::cpu {

template <WeightType kType>
void plain_gemv(const GemvCall& c) {
  const WeightTypeInfo& info = weight_type_info(kType);
  for (size_t r = 0; r < c.n_rows; ++r) {
    for (size_t t = 0; t < c.n_tok; ++t) c.out[t * c.out_stride + r] = 0;
    for (size_t first = 0; first < c.n_cols; first += kGroup) {
      float w[kGroup];
      const size_t n = std::min(kGroup, c.n_cols - first);
      info.decode(c.rows + r * c.row_bytes + first / info.block_weights * info.block_bytes, w, n);
      for (size_t t = 0; t < c.n_tok; ++t) {
        const float* x = c.act.x + t * c.n_cols + first;
        float sum = 0;
        for (size_t k = 0; k < n; ++k) sum += w[k] * x[k];
        c.out[t * c.out_stride + r] += sum;
      }
    }
  }
}

template <WeightType kType>
inline constexpr WeightKernels kPlainWeightKernels = {TileKind::kFloat,  false,   false,
                                                      plain_gemv<kType>, nullptr, nullptr};

}  // namespace weir::cpu
