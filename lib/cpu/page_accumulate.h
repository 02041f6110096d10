// Accumulates attention masses as page scores on the CPU; ops/page_accumulate.h has the contract.
#pragma once

#include "ops/page_accumulate.h"

namespace weir::cpu {

Status page_accumulate(OpContext& cx, const PageAccumulateArgs& a);

}  // namespace weir::cpu
