// Attention of a decode step; steps.h declares attn_decode itself.
#pragma once

#include "ops/table.h"
#include "vulkan/steps.h"

namespace weir::vulkan {

uint64_t attn_decode_scratch_bytes(const OpShapes& shapes);
// Whether AttnDecodeArgs::stamps can be set: the rule needs no ranking and no gaps, and one workgroup has all query
// heads of a KV head.
bool attn_decode_can_stamp(const AttnPagedArgs& a, const PageStampArgs& stamp);
// Whether attn_stop has a kernel for groups of so many query heads.
bool attn_stop_has_shape(uint32_t n_heads, uint32_t n_kv_heads);
// Whether attn_stop is one launch, which also rotates the query and appends: no masses are wanted, and one workgroup
// has all query heads of a KV head. Otherwise it makes a list for attn_decode.
bool attn_stop_appends(const AttnPagedArgs& a);

}  // namespace weir::vulkan
