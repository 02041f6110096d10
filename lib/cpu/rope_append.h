// Head norms, rotary embedding and appending to the KV pages on the CPU; ops/ops.h has the contract.
#pragma once

#include "ops/ops.h"

namespace weir::cpu {

Status rope_append(OpContext& cx, const RopeAppendArgs& a);

}  // namespace weir::cpu
