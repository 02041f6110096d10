// Attention of a decode step; steps.h declares attn_decode itself.
#pragma once

#include "ops/table.h"
#include "vulkan/steps.h"

namespace weir::vulkan {

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes);
// Whether AttnDecodeArgs::stamps can be set: the rule needs no ranking and no gaps, and one workgroup has all query
// heads of a KV head.
bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp);
// Whether one workgroup of attn_stop has all query heads of a KV head.
bool attn_stop_has_shape(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim);

}  // namespace weir::vulkan
