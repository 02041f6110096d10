// Queries and gates of attention heads on the CPU; ops/head_gate.h has the contract.
#pragma once

#include "ops/head_gate.h"

namespace weir::cpu {

Status head_gate(OpContext& cx, const HeadGateArgs& a);

}  // namespace weir::cpu
