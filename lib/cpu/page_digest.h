// Digests of pages on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status page_digest(OpContext& cx, const PageDigestArgs& a);

}  // namespace weir::cpu
