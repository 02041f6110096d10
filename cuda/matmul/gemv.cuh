// Matrix times one or a few vectors for decode steps, fused with what stands before and after it: RMS norm of the input, residual, gated activation.
#pragma once

#include "core/status.h"
#include "ops/ops.h"

namespace weir::cuda {

// Inputs of one product, at most.
inline constexpr uint32_t kMostColumns = 8;

// One more input of the same product, and where its outputs go.
struct GemvColumn {
  const float* x;
  float* y[3];  // by part, as part[i].y
};

struct GemvArgs {
  MatmulPart part[3];  // rows of all parts are outputs of one launch; y [n_rows]
  uint32_t n_parts = 0;
  const float* x = nullptr;     // [n_cols]
  const float* norm = nullptr;  // [n_cols] weight of an RMS norm of x, or null
  float eps = 0.0f;
  bool glu = false;      // part[0] is the gate, part[1] the up matrix; part[0].y = silu(gate x) * (up x)
  bool overlap = false;  // may start before the previous kernel has ended, see launch()

  // More inputs; bias, accumulate, norm, eps and glu are every column's.
  const GemvColumn* more = nullptr;  // [n_more] host memory, copied
  uint32_t n_more = 0;               // at most kMostColumns - 1
};

// Every column's y has the bits that a call with it alone gives; weights are read once for all columns whose inputs fit into shared memory together.
// Weights lie as formats.cuh says; n_cols is a multiple of 32. Parts of different types take a launch each.
Status gemv(OpContext& cx, const GemvArgs& a);

// Most columns that fit into the device's shared memory.
uint32_t gemv_max_cols(WeightType type);

}  // namespace weir::cuda
