// Top-k page selection on the CPU; ops/page_select.h has the contract.
#pragma once

#include "ops/page_select.h"
#include "ops/table.h"

namespace weir::cpu {

Status page_select(OpContext& cx, const PageSelectArgs& a);
uint64_t page_select_scratch_bytes(const OpShapes& shapes);

}  // namespace weir::cpu
