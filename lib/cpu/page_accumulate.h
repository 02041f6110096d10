// Accumulates attention masses as page scores on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status page_accumulate(OpContext& cx, const PageAccumulateArgs& a);

}  // namespace weir::cpu
