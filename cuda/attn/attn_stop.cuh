// Attention of one query row that takes the most important pages first and stops when it has seen enough, where
// sparse_layer does not have it.
#pragma once

#include "core/status.h"
#include "device/kernels.h"
#include "ops/types.h"

namespace weir::cuda {

using device::AttnStopArgs;

// Shared memory of a block of attn_stop for heads of head_dim elements and tables of `capacity` rows.
size_t attn_stop_shared_bytes(uint32_t group, uint32_t head_dim, uint32_t capacity);

// Whether attn_stop has groups of `group` query heads with such tables.
bool has_attn_stop(uint32_t group, uint32_t head_dim, uint32_t capacity);

// Queries and the new key are rotated and appended before: without AttnDecodeArgs::append.
Status attn_stop(OpContext& cx, const AttnStopArgs& a);

}  // namespace weir::cuda
