// Which of the devices that the driver shows is used, and whether it can be: decisions about plain numbers, so that
// tests need no driver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "device/module.h"

namespace weir::vulkan {

// What a device has of what the kernels need.
struct DeviceTraits {
  char name[256] = "";
  char driver[64] = "";
  DeviceKind kind = DeviceKind::kDiscrete;
  uint64_t memory_bytes = 0;                                     // of its largest heap of its own
  uint32_t version = 0;                                          // VK_MAKE_API_VERSION
  uint32_t min_lanes = 0;                                        // of a subgroup
  bool shuffle = false, arithmetic = false, in_compute = false;  // subgroup operations, in compute shaders
  uint32_t invocations = 0;                                      // most of a workgroup
  uint32_t shared_bytes = 0;                                     // most of a workgroup
  uint32_t push_bytes = 0;                                       // most push constants
  bool addresses = false;                                        // bufferDeviceAddress
  bool full_subgroups = false;                                   // computeFullSubgroups
  bool compute_queue = false;
};

inline constexpr uint32_t kMinShared = 32 * 1024, kMinPush = 128;

// WEIR_ERR_UNSUPPORTED: what is missing, and what the device has.
Status check_traits(const DeviceTraits& traits);

// The index of the device that `wanted` names: a number, or part of a name in any case of letters. Null or empty: of
// those that can be used, a discrete one, then an integrated, then a virtual one, then a CPU driver; of equals that
// with most memory, then the first. WEIR_ERR_NOT_FOUND and, where several have the name, WEIR_ERR_INVALID_ARG list the
// devices; WEIR_ERR_UNSUPPORTED: there is none, or none that can be used.
Status choose_device(const DeviceTraits* devices, uint32_t n, const char* wanted, uint32_t& which);

}  // namespace weir::vulkan
