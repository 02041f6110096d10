// Head norms, rotary embedding and appending to the KV pages on the CPU; ops/rope_append.h has the contract.
#pragma once

#include "ops/rope_append.h"

namespace weir::cpu {

Status rope_append(OpContext& cx, const RopeAppendArgs& a);

}  // namespace weir::cpu
