// The instance, and the one device that is open.
#pragma once

#include "runtime/cache_file.h"
#include "vulkan/api.h"
#include "vulkan/choice.h"
#include "vulkan/matrices.h"

namespace weir::vulkan {

inline constexpr uint32_t kMaxDevices = kMaxListed;  // those beyond are not seen

struct Device {
  Functions vk;
  VkInstance instance = nullptr;
  VkDevice device = nullptr;  // null: not open
  VkPhysicalDevice physical = nullptr;
  VkQueue queue = nullptr;
  uint32_t queue_family = 0;
  uint32_t index = 0;  // among the devices that the driver shows
  DeviceTraits traits;
  uint64_t max_bytes = 0;  // of an allocation
  uint64_t max_buffer_bytes = 0;
  bool has_sparse = false;  // buffers may have memory in several pieces
  // The largest that Memory::allocate gives.
  uint64_t max_allocated() const { return has_sparse ? max_buffer_bytes : max_bytes; }
  uint32_t local_type = 0;  // memory type of the device's own memory, in its largest heap
  uint32_t local_heap = 0;
  uint32_t host_type = 0;  // memory type that the host maps
  // Integer dot products of packed bytes: an option of drivers, and false where the self-test finds them wrong.
  bool has_dot = false;
  Matrices matrices;  // the same of cooperative matrices
  MatrixTiles tiles = kMatrixTiles;
  bool has_budget = false;  // VK_EXT_memory_budget
  CacheKey cache_key;       // of what its driver compiles of this module
  // Lanes of the subgroups of decode steps' GEMVs, so that a sum has the same bits in every kernel. 0: the device has
  // subgroups of one size only, or does not let it be chosen.
  uint32_t step_lanes = 0;
  // Kernels that divide work among as many workgroups as a large device runs at once take no more than these.
  uint32_t max_groups = UINT32_MAX;
  // What a dispatch of a prompt's dense matrices in f32, or of its attention, may compute.
  uint64_t max_flops = UINT64_MAX;
};

// Opens the loader and makes the instance, once.
Status open_instance(const char* loader, Device& d);
// What the driver shows; at most kMaxDevices.
Status list_devices(Device& d, DeviceTraits* devices, uint32_t& n);
// Checks the device `which` and opens it. If that fails, close_device() must follow, too.
Status open_device(Device& d, uint32_t which);
// Its objects are destroyed; it may be opened again.
void close_device(Device& d);
// What every buffer is made with: so that all of them may lie in the same types of memory.
VkBufferCreateInfo buffer_info(uint64_t bytes);
// Bytes of the device's memory that are free; all of it where the driver does not tell.
uint64_t free_bytes(const Device& d);

}  // namespace weir::vulkan
