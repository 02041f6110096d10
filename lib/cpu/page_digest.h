// Digests of pages on the CPU; ops/page_digest.h has the contract.
#pragma once

#include "ops/page_digest.h"

namespace weir::cpu {

Status page_digest(OpContext& cx, const PageDigestArgs& a);

}  // namespace weir::cpu
