// Estimates of pages on the CPU; ops/page_score.h has the contract.
#pragma once

#include "ops/page_score.h"

namespace weir::cpu {

Status page_score(OpContext& cx, const PageScoreArgs& a);

}  // namespace weir::cpu
