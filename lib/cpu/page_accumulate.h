// Accumulates attention masses as page scores on the CPU; ops/page_accumulate.h has the contract.
#pragma once

#include "ops/page_accumulate.h"
#include "ops/table.h"

namespace weir::cpu {

uint64_t page_accumulate_scratch_bytes(const OpShapes& shapes);
Status page_accumulate(OpContext& cx, const PageAccumulateArgs& a);

}  // namespace weir::cpu
