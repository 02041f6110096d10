// What a session counts over its calls; readable from any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir {

class SessionCounter {
 public:
  void add(uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  void set(uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct SessionCounters {
  SessionCounter n_prompt, n_decode;  // tokens
  SessionCounter prefill_ns, decode_ns;
  SessionCounter pages_attended;  // by the latest step
  SessionCounter late_allocs;     // since the session was created

  // A fork goes on with all but the allocations, which are its own.
  void copy_from(const SessionCounters& other) {
    n_prompt.set(other.n_prompt.get());
    n_decode.set(other.n_decode.get());
    prefill_ns.set(other.prefill_ns.get());
    decode_ns.set(other.decode_ns.get());
    pages_attended.set(other.pages_attended.get());
  }
};

}  // namespace weir
