// Sessions with attention on a Vulkan device, for the module's table. The context's mutex is not held.
#pragma once

#include "device/module.h"

namespace weir::vulkan {

uint32_t session_bytes();
uint64_t session_device_bytes(const OpShapes& shapes);
Status check_session(const ModelConfig& config, const PolicyNeeds& needs, const StepRules& rules);
Status create_session(void* place, const DeviceSessionArgs& args, DeviceSession*& out);
Status prepare_many(DeviceSession* const* sessions, uint32_t n);
Status step_many(DeviceSession* const* sessions, const int32_t* tokens, uint32_t n);

}  // namespace weir::vulkan
