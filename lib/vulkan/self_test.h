// Whether subgroup operations give what they should: some drivers' shuffles are wrong.
#pragma once

#include "core/status.h"
#include "shaders/shared.h"

namespace weir::vulkan {

// `words` [kSelfTestWords, kInvocations] is what shaders/self_test.comp wrote on the device `name`.
// WEIR_ERR_UNSUPPORTED says what is wrong.
Status check_self_test(const uint32_t* words, const char* name);

}  // namespace weir::vulkan
