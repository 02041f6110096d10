// Estimates of pages on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status page_score(OpContext& cx, const PageScoreArgs& a);

}  // namespace weir::cpu
