// The kernel gemv: matrices times one vector or a few, in decode steps.
#pragma once

#include <cstdint>

#include "device/kernels.h"
#include "ops/matmul.h"
#include "ops/types.h"

namespace weir::device {

// Another input vector of the same GEMV, and where its outputs go.
struct GemvColumn {
  const float* x;
  float* y[3];  // by part, as part[i].y
};

// GEMV with one or a few input vectors, fused with its neighbours: RMS norm of the input, residual, gated activation.
// Every column's y has the same bits as when it is computed alone.
struct GemvArgs {
  MatmulPart part[3];  // the rows of all parts are outputs of one launch; y [n_rows]
  uint32_t n_parts = 0;
  const float* x = nullptr;     // [n_cols]
  const float* norm = nullptr;  // [n_cols] weight of an RMS norm of x, or null
  float eps = 0.0f;
  bool glu = false;  // part[0] is the gate, part[1] the up matrix; part[0].y = activation(gate x) * (up x)
  Gate activation = Gate::kSilu;
  bool overlap = false;

  // More input vectors; bias, accumulate, norm, eps and glu apply to every column.
  const GemvColumn* more = nullptr;  // [n_more] host memory, copied
  uint32_t n_more = 0;               // at most kMaxColumns - 1
};

}  // namespace weir::device
