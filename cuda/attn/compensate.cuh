// Compensation tokens after attention.
#pragma once

#include "core/status.h"
#include "device/kernels/compensate.h"

namespace weir::cuda {

using device::CompensateArgs;

Status compensate(OpContext& cx, const CompensateArgs& a);

}  // namespace weir::cuda
