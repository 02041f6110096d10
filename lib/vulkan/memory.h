// Device memory: every allocation is a buffer with memory of its own, and its address is the pointer that the library
// gets. A table leads from addresses back to buffers, for copies. One thread at a time.
#pragma once

#include "vulkan/device.h"

namespace weir::vulkan {

struct Allocation {
  uint64_t address = 0;  // aligned to kAlignment
  uint64_t bytes = 0;    // from there on, a multiple of kAlignment
  uint64_t base = 0;     // address of the buffer
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
};

class Memory {
 public:
  static constexpr uint64_t kAlignment = 256;

  // WEIR_ERR_OUT_OF_MEMORY with the bytes; WEIR_ERR_UNSUPPORTED beyond what the driver gives at once, with the limit.
  Status allocate(const Device& d, uint64_t bytes, void** out);
  // Nothing may be using it.
  Status release(const Device& d, void* device);
  // The allocation that holds all of these bytes, or null.
  const Allocation* find(uint64_t address, uint64_t bytes) const;

 private:
  // Drivers guarantee so many allocations and may refuse more.
  static constexpr size_t kMost = 4096;
  Allocation table_[kMost];  // ascending
  size_t n_ = 0;
};

// Makes a buffer with memory of this type. `mapped`, if not null, gets where the host sees it.
Status make_buffer(const Device& d, uint64_t bytes, uint32_t memory_type, Allocation& out, void** mapped);
void destroy_buffer(const Device& d, const Allocation& a);

}  // namespace weir::vulkan
