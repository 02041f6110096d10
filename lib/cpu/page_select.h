// Top-k page selection on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status page_select(OpContext& cx, const PageSelectArgs& a);
uint64_t page_select_scratch_bytes(const OpShapes& shapes);

}  // namespace weir::cpu
