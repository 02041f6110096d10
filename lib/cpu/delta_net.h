// The gated delta rule on the CPU; ops/delta_net.h has the contract.
#pragma once

#include "ops/delta_net.h"

namespace weir::cpu {

Status delta_net(OpContext& cx, const DeltaNetArgs& a);

}  // namespace weir::cpu
