// Root mean square normalisation on the CPU; ops/rms_norm.h has the contract.
#pragma once

#include "ops/rms_norm.h"

namespace weir::cpu {

Status rms_norm(OpContext& cx, const RmsNormArgs& a);

}  // namespace weir::cpu
