// Root mean square normalisation on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status rms_norm(OpContext& cx, const RmsNormArgs& a);

}  // namespace weir::cpu
