// GEMV with one or a few input vectors for decode steps, fused with its neighbours: RMS norm of the input, residual,
// gated activation.
#pragma once

#include "core/status.h"
#include "device/kernels.h"
#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir::cuda {

using device::GemvArgs;
using device::GemvColumn;
using device::kMaxColumns;

// Every column's y has the same bits as when it is computed alone. Weights are read once for all columns whose inputs
// fit into shared memory together. They are laid out as formats.cuh says; n_cols is a multiple of 32. Each weight type
// among the parts takes a launch of its own.
Status gemv(OpContext& cx, const GemvArgs& a);

// Largest n_cols whose input fits into a block's shared memory.
uint32_t gemv_max_cols(WeightType type);

}  // namespace weir::cuda
