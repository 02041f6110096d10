// GEMV with one or a few input vectors for decode steps, fused with its neighbours: RMS norm of the input, residual,
// gated activation.
#pragma once

#include "core/status.h"
#include "ops/ops.h"

namespace weir::cuda {

// Maximum number of input vectors (columns) of one GEMV.
inline constexpr uint32_t kMostColumns = 8;

// Another input vector of the same GEMV, and where its outputs go.
struct GemvColumn {
  const float* x;
  float* y[3];  // by part, as part[i].y
};

struct GemvArgs {
  MatmulPart part[3];  // the rows of all parts are outputs of one launch; y [n_rows]
  uint32_t n_parts = 0;
  const float* x = nullptr;     // [n_cols]
  const float* norm = nullptr;  // [n_cols] weight of an RMS norm of x, or null
  float eps = 0.0f;
  bool glu = false;  // part[0] is the gate, part[1] the up matrix; part[0].y = activation(gate x) * (up x)
  Gate activation = Gate::kSilu;
  bool overlap = false;  // programmatic dependent launch, see launch()

  // More input vectors; bias, accumulate, norm, eps and glu apply to every column.
  const GemvColumn* more = nullptr;  // [n_more] host memory, copied
  uint32_t n_more = 0;               // at most kMostColumns - 1
};

// Every column's y has the same bits as when it is computed alone. Weights are read once for all columns whose inputs
// fit into shared memory together. They are laid out as formats.cuh says; n_cols is a multiple of 32. Each weight type
// among the parts takes a launch of its own.
Status gemv(OpContext& cx, const GemvArgs& a);

// Largest n_cols whose input fits into a block's shared memory.
uint32_t gemv_max_cols(WeightType type);

}  // namespace weir::cuda
