// Queries that grow with their positions on the CPU; ops/temper.h has the contract.
#pragma once

#include "ops/temper.h"

namespace weir::cpu {

Status temper(OpContext& cx, const TemperArgs& a);

}  // namespace weir::cpu
