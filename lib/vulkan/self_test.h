// Whether subgroup operations give what they should: some drivers' shuffles are wrong.
#pragma once

#include "core/status.h"
#include "shaders/shared.h"

namespace weir::vulkan {

// `words` [kSelfTestWords, kInvocations] is what shaders/self_test.comp wrote on the device `name`.
// WEIR_ERR_UNSUPPORTED says what is wrong.
Status check_self_test(const uint32_t* words, const char* name);

// Whether `words` [kInvocations], which shaders/self_test_dot.comp wrote, are right.
bool check_self_test_dot(const uint32_t* words);

}  // namespace weir::vulkan
