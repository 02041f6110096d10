// The guard that calls into a session hold: one thread at a time, and allocations are counted.
#pragma once

#include "runtime/session.h"

namespace weir {

// Holds the session for one thread and counts the allocations meanwhile, except those that callbacks make for
// themselves.
class Session::Entry {
 public:
  explicit Entry(Session& session)
      : session_(session), entered_(!session.busy_.exchange(true)), allocs_(HostMemory::thread_allocs()) {
    if (entered_) session.call_outs_.restart();
  }
  ~Entry() {
    if (!entered_) return;
    session_.late_allocs_.fetch_add(HostMemory::thread_allocs() - allocs_ - session_.call_outs_.allocs(),
                                    std::memory_order_relaxed);
    session_.busy_.store(false);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  Status status() const { return entered_ ? Status() : fail(WEIR_ERR_BUSY, "another thread is inside this session"); }

 private:
  Session& session_;
  bool entered_;
  uint64_t allocs_;
};

}  // namespace weir
