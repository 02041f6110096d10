// The GEMVs of decode steps in integers: the norm, the matrices of one input and what follows in one dispatch.
#pragma once

#include "device/kernels.h"

namespace weir::vulkan {

// Whether the device and these matrices allow them. It depends on no other session, and on a's columns only by their
// addresses' alignment.
bool has_step_gemv(const device::GemvArgs& a);
// Each column by itself.
Status step_gemv(const device::GemvArgs& a);

}  // namespace weir::vulkan
