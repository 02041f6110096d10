// Mamba-2 on the CPU; ops/mamba2.h has the contract.
#pragma once

#include "ops/mamba2.h"

namespace weir::cpu {

Status mamba2(OpContext& cx, const Mamba2Args& a);

}  // namespace weir::cpu
