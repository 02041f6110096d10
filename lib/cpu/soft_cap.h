// Soft caps of output logits on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status soft_cap(OpContext& cx, const SoftCapArgs& a);

}  // namespace weir::cpu
