#include "core/callback.h"

#include "core/call.h"

namespace weir {
namespace {

thread_local RunningCallback* t_innermost = nullptr;

}  // namespace

RunningCallback* RunningCallback::innermost() { return t_innermost; }

Answer call_outside(weir_status (*invoke)(void* callback), void* callback) noexcept {
  const Call::Break outside;
  RunningCallback running;
  running.outer = t_innermost;
  Answer answer = {false, true};
  if (setjmp(running.back) == 0) {
    t_innermost = &running;
    try {
      answer = {invoke(callback) == WEIR_OK, false};
    } catch (...) {
    }
  }
  t_innermost = running.outer;
  return answer;
}

}  // namespace weir
