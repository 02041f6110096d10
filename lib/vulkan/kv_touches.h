// What kernels declare of KV memory whose extent their arguments do not tell.
#pragma once

#include "vulkan/context.h"

namespace weir::vulkan {

// Bytes from an address to the end of its allocation: slots may lie anywhere in the pool.
inline uint64_t bytes_from(const void* device) {
  const auto address = reinterpret_cast<uint64_t>(device);
  const Allocation* const a = context().memory.find(address, 1);
  return a == nullptr ? 0 : a->address + a->bytes - address;
}

}  // namespace weir::vulkan
