// Device memory: every allocation is a buffer with memory of its own, and its address is the pointer that the library
// gets. Staging memory is host memory that the device sees as well: the library gets where the host sees it. Tables
// lead from addresses back to buffers, for copies. One thread at a time.
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

// Memory of a buffer that has several (large_buffer.h).
struct Piece {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
};

class Memory {
 public:
  static constexpr uint64_t kAlignment = 256;

  // WEIR_ERR_OUT_OF_MEMORY with the bytes; WEIR_ERR_UNSUPPORTED beyond what the driver gives at once, with the limit,
  // where pieces cannot make it up.
  Status allocate(const Device& d, uint64_t bytes, void** out);
  // Nothing may be using it, or be recorded that does: Context::release sees to that.
  Status release(const Device& d, void* device);
  // The allocation that holds all of these bytes, or null.
  const Allocation* find(uint64_t address, uint64_t bytes) const;

  // Mapped host memory, aligned to `alignment` for the host.
  Status allocate_staging(const Device& d, uint64_t bytes, uint64_t alignment, void** host);
  Status release_staging(const Device& d, void* host);
  // The device's address of bytes in staging memory, or 0.
  uint64_t staged_address(const void* host, uint64_t bytes) const;

 private:
  struct Staged {
    std::byte* host = nullptr;
    uint64_t address = 0, bytes = 0;
  };
  Status check_room(uint64_t bytes) const;
  void insert(const Allocation& a);

  // Drivers guarantee so many allocations and may refuse more.
  static constexpr size_t kMax = 4096;
  Allocation table_[kMax];  // ascending
  size_t n_ = 0;
  static constexpr size_t kMaxPieces = 1024;
  Piece pieces_[kMaxPieces];
  size_t n_pieces_ = 0;
  // One of each session, and one more with recall.
  static constexpr size_t kMaxStaged = 1024;
  Staged staged_[kMaxStaged];
  size_t n_staged_ = 0;
};

// Makes a buffer with memory of this type. `mapped`, if not null, gets where the host sees it.
Status make_buffer(const Device& d, uint64_t bytes, uint32_t memory_type, Allocation& out, void** mapped);
void destroy_buffer(const Device& d, const Allocation& a);

}  // namespace weir::vulkan
