// References to a cancel that is shared.
#include "core/cancel.h"

#include "core/memory.h"

namespace weir {

void retain(SharedCancel* cancel) { cancel->n_refs.fetch_add(1, std::memory_order_relaxed); }

void release(SharedCancel* cancel) {
  if (cancel == nullptr || cancel->n_refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  HostMemory memory{AllocatorHooks{}};
  destroy_in(memory, cancel);
}

}  // namespace weir
