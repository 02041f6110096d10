// Attention over the tokens that mattered to the steps before, and its tables after a prompt.
#pragma once

#include "ops/attn_history.h"
#include "ops/history_begin.h"
#include "ops/table.h"

namespace weir::cpu {

uint64_t attn_history_scratch_bytes(const OpShapes& shapes);
Status attn_history(OpContext& cx, const AttnHistoryArgs& a);
Status history_begin(OpContext& cx, const HistoryBeginArgs& a);

}  // namespace weir::cpu
