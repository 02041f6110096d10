// Calls of an application's functions from inside a call of a session, whose allocations are not the session's.
#pragma once

#include <cstdint>

#include "core/callback.h"
#include "core/memory.h"

namespace weir {

class CallOuts {
 public:
  // Calls `callback`, which returns a weir_status.
  template <class F>
  Answer call(F&& callback) {
    const uint64_t allocs = HostMemory::thread_allocs();
    const Answer answer = call_back(callback);
    allocs_ += HostMemory::thread_allocs() - allocs;
    return answer;
  }
  // What they allocated since the session was entered.
  uint64_t allocs() const { return allocs_; }
  void restart() { allocs_ = 0; }

 private:
  uint64_t allocs_ = 0;
};

}  // namespace weir
