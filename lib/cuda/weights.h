// From a file's weight layout to the device's, on the host; cuda/quant/planes.h describes the planes.
#pragma once

#include "core/status.h"
#include "cuda/quant/planes.h"
#include "ops/ops.h"

namespace weir::cuda {

// The matrix can be laid out for the kernels: columns come in whole blocks of 32.
Status check_weight(const Weight& weight);

// Rows [first_row, end_row) of `host`, to their places in `out`, which holds the whole matrix.
void repack(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out);

// Bytes of 256 weights in each plane, in order; returns the number of planes.
uint32_t planes(WeightType type, uint32_t bytes[kMostPlanes]);

}  // namespace weir::cuda
