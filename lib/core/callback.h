// The only way in which callbacks of the application are called. An exception never gets past it: it counts as a
// refusal, so the calling code has one error path to write and to test. Meanwhile the thread has the caller's
// floating-point environment, and calls that the callback makes have error texts of their own.
#pragma once

#include <utility>

#include "core/call.h"
#include "weir/base.h"

namespace weir {

// What a callback answered.
struct Answer {
  bool agreed = true;
  bool threw = false;
  // For the end of a message.
  const char* why() const { return threw ? ": the callback threw" : ""; }
};

// `callback` calls it and returns its status.
template <class F>
Answer call_back(F&& callback) noexcept {
  const Call::Break outside;
  try {
    return {std::forward<F>(callback)() == WEIR_OK, false};
  } catch (...) {
    return {false, true};
  }
}

}  // namespace weir
