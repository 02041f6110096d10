// Sizes that the ops over matrices share.
#pragma once

#include <algorithm>
#include <bit>

#include "device/kernels.h"
#include "vulkan/context.h"

namespace weir::vulkan {

inline uint64_t weight_bytes(const Weight& w) { return w.n_rows * w.row_bytes; }
constexpr uint64_t float_bytes(uint64_t n) { return n * sizeof(float); }
// 32-weight blocks of a matrix and of a row.
inline uint32_t blocks_of(const Weight& w) { return static_cast<uint32_t>(uint64_t{w.n_rows} * w.n_cols / 32); }
inline uint32_t row_blocks_of(const Weight& w) { return w.n_cols / 32; }

constexpr uint32_t columns_for(uint32_t n_tok) { return std::bit_ceil(std::min(n_tok, kMaxColumns)); }

// Rows of a prompt that one dispatch takes, whole tiles of them.
inline uint32_t rows_at_once(uint64_t flops_per_row, uint32_t tile) {
  const uint64_t tiles = context().device.max_flops / (std::max<uint64_t>(flops_per_row, 1) * tile);
  return static_cast<uint32_t>(std::clamp<uint64_t>(tiles, 1, UINT32_MAX / tile)) * tile;
}

// For the kernels that include common/top_rows.glsl: one workgroup takes all rows, so that its latency counts.
constexpr uint32_t kTopInvocations = 512;
inline Variant top_rows_variant(uint32_t n_rows, uint32_t max_invocations = kTopInvocations) {
  const uint32_t invocations = std::min(max_invocations, std::bit_floor(context().device.traits.invocations));
  return {1, 1, std::clamp((n_rows + invocations - 1) / invocations, 1u, kMaxOwnRows), invocations};
}

// Enough workgroups for a subgroup to each row, where subgroups are as small as they may be; fewer take more rows each.
inline uint32_t groups_for(uint32_t n_rows) {
  const uint32_t rows = kInvocations / context().device.traits.min_lanes;
  return std::min((n_rows + rows - 1) / rows, kMaxGroups);
}
inline Grid grid_of(uint32_t n_rows, uint32_t n_tok) {
  return {groups_for(n_rows), (n_tok + columns_for(n_tok) - 1) / columns_for(n_tok)};
}

}  // namespace weir::vulkan
