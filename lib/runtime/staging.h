// A module's staging memory, counted as the session's whoever gives it.
#pragma once

#include "core/memory.h"
#include "device/module.h"

namespace weir {

// Throws std::bad_alloc when `memory` does.
inline Status take_staging(const DeviceModule& module, HostMemory& memory, uint64_t bytes, void** out) {
  WEIR_TRY(module.allocate_staging(memory, bytes, out));
  if (module.own_staging) memory.count_alloc(bytes);
  return {};
}

inline void give_staging_back(const DeviceModule& module, HostMemory& memory, void* staging, uint64_t bytes) {
  (void)module.release_staging(memory, staging, bytes);
  if (module.own_staging) memory.count_free(bytes);
}

}  // namespace weir
