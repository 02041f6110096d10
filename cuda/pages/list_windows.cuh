// Lists of streams that are attended whole whatever a policy selects.
#pragma once

#include "core/status.h"
#include "device/kernels/list_windows.h"

namespace weir::cuda {

using device::ListWindowsArgs;

Status list_windows(OpContext& cx, const ListWindowsArgs& a);

}  // namespace weir::cuda
