// Attention over KV pages on the CPU; ops/attn_paged.h has the contract.
#pragma once

#include "ops/attn_paged.h"
#include "ops/table.h"

namespace weir::cpu {

Status attn_paged(OpContext& cx, const AttnPagedArgs& a);
uint64_t attn_scratch_bytes(const OpShapes& shapes);

}  // namespace weir::cpu
