// The only way in which callbacks of the application are called. An exception never gets past it: it counts as a
// refusal, so the calling code has one error path to write and to test. Meanwhile the thread has the caller's
// floating-point environment, and calls that the callback makes have error texts of their own.
#pragma once

#include <csetjmp>
#include <type_traits>

#include "weir/base.h"

namespace weir {

// What a callback answered.
struct Answer {
  bool agreed = true;
  bool threw = false;
  // For the end of a message.
  const char* why() const { return threw ? ": the callback threw" : ""; }
};

// A callback that runs on this thread, and where its call goes on when it throws. A library with a C++ runtime of its
// own cannot catch what another one throws; lib/self_contained/cpp_runtime.cpp jumps back instead.
struct RunningCallback {
  std::jmp_buf back;
  RunningCallback* outer;
  static RunningCallback* innermost();
};

Answer call_outside(weir_status (*invoke)(void* callback), void* callback) noexcept;

// `callback` calls it and returns its status. It has nothing to clean up when the callback throws.
template <class F>
Answer call_back(F&& callback) noexcept {
  return call_outside([](void* f) -> weir_status { return (*static_cast<std::remove_reference_t<F>*>(f))(); },
                      &callback);
}

}  // namespace weir
