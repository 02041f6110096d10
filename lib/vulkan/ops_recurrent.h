// Sizes of recurrent layers that the kernels take.
#pragma once

#include "core/status.h"
#include "ops/recurrent.h"

namespace weir::vulkan {

// `what` begins the message.
Status check_recurrent(const char* what, uint32_t key_dim, uint32_t value_dim, uint32_t n_taps);

}  // namespace weir::vulkan
