// One public call on one thread: what it changes in the thread's state, and restores at its end. The floating-point
// environment is the default one, so that neither the caller's traps nor its rounding mode reach the kernels. The
// thread cannot be cancelled (pthread_cancel waits for the end of the call). The error text belongs to the call until
// it fails, so that a failure from which the library recovers leaves weir_last_error alone. Callbacks of the
// application run outside of all that (core/callback.h).
#pragma once

#include <cfenv>
#include <cstdint>

#include "core/status.h"

namespace weir {

// Rounding mode, traps and flags of a thread. On x86-64 and AArch64 reading and setting cost a few cycles.
class FloatEnvironment {
 public:
  void save();
  void restore() const;
  // Round to nearest, no traps, subnormal numbers kept.
  static void set_default();

 private:
#if defined(__x86_64__)
  uint32_t mxcsr_;
  uint16_t x87_control_;
  uint32_t x87_[7];  // as fnstenv stores it; set when the control word is not the default one
#elif defined(__aarch64__)
  uint64_t control_, status_;
#else
  std::fenv_t environment_;
#endif
};

class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The call failed: makes its text the thread's last error.
  void publish_error() const;

  // Where the thread's failures store their text: [kErrorBytes], its call's or, outside of any, the thread's last
  // error.
  static char* error_text();
  // The text that weir_last_error returns.
  static const char* published_error_text();

  // Restores the caller's state of the thread for the time of a callback. If the callback changes the floating-point
  // environment, it stays changed for the caller.
  class Break {
   public:
    Break();
    ~Break();
    Break(const Break&) = delete;
    Break& operator=(const Break&) = delete;

   private:
    Call* call_;
  };

 private:
  Call* outer_;
  FloatEnvironment caller_;
  int cancellation_ = 0;
  char error_[kErrorBytes];
};

// An address that identifies the thread among those that are alive.
const void* this_thread();

}  // namespace weir
