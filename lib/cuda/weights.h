// Converts matrices on the host from the file's layout to the device's; cuda/quant/planes.h describes the planes.
#pragma once

#include "core/status.h"
#include "cuda/quant/planes.h"
#include "ops/ops.h"

namespace weir::cuda {

// Checks that the matrix can be laid out for the kernels: its columns are a multiple of 32.
Status check_weight(const Weight& weight);

// Writes rows [first_row, end_row) of `host` to their positions in `out`, which holds the whole matrix.
void repack(const Weight& host, uint32_t first_row, uint32_t end_row, uint8_t* out);

// Bytes of 256 weights in each plane, in order; returns the number of planes.
uint32_t planes(WeightType type, uint32_t bytes[kMostPlanes]);

}  // namespace weir::cuda
