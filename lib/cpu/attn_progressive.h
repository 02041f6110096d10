// Attention that stops when it has seen enough, on the CPU.
#pragma once

#include "ops/attn_progressive.h"
#include "ops/table.h"

namespace weir::cpu {

uint64_t attn_progressive_scratch_bytes(const OpShapes& shapes);
Status attn_progressive(OpContext& cx, const AttnProgressiveArgs& a);

}  // namespace weir::cpu
