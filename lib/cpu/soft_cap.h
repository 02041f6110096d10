// Soft caps of output logits on the CPU; ops/soft_cap.h has the contract.
#pragma once

#include "ops/soft_cap.h"

namespace weir::cpu {

Status soft_cap(OpContext& cx, const SoftCapArgs& a);

}  // namespace weir::cpu
