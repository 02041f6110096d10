// RaaS stamping on the CPU; ops/page_stamp.h has the contract.
#pragma once

#include "ops/page_stamp.h"
#include "ops/table.h"

namespace weir::cpu {

Status page_stamp(OpContext& cx, const PageStampArgs& a);
uint64_t page_stamp_scratch_bytes(const OpShapes& shapes);

}  // namespace weir::cpu
