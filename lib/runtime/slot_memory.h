// Memory of a store's raw pages: the host's, or on a device staging memory, from which steps copy.
#pragma once

#include <memory_resource>

#include "core/memory.h"
#include "runtime/device_module.h"

namespace weir {

class SlotMemory final : public std::pmr::memory_resource {
 public:
  explicit SlotMemory(HostMemory& memory) : memory_(memory) {}
  const DeviceModule* module = nullptr;
  Status failed;  // of the module, where that was why there is no memory

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* ptr, size_t bytes, size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  HostMemory& memory_;
};

}  // namespace weir
