// Attention of one query row over the best tokens of the listed pages (TokenChoice).
#pragma once

#include "core/status.h"
#include "ops/attn_paged.h"
#include "ops/table.h"

namespace weir::cpu {

uint64_t attn_tokens_scratch_bytes(const OpShapes& shapes);
Status attn_tokens(OpContext& cx, const AttnPagedArgs& a);

}  // namespace weir::cpu
