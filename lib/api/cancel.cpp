// Cancels that outlive what they stop. They belong to no runtime, so that they may outlive all of them: the only
// objects that no hook gives.
#include "core/cancel.h"

#include "api/handles.h"

using namespace weir;

struct weir_cancel final : SharedCancel {};
static_assert(sizeof(weir_cancel) == sizeof(SharedCancel), "release() gives back what weir_cancel_create took");

weir_status weir_cancel_create(weir_cancel** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  return api::guard([&]() -> Status {
    HostMemory memory{AllocatorHooks{}};
    *out = make_in<weir_cancel>(memory);
    return {};
  });
}

weir_cancel* weir_cancel_retain(weir_cancel* cancel) {
  if (cancel != nullptr) retain(cancel);
  return cancel;
}

void weir_cancel_release(weir_cancel* cancel) { release(cancel); }

void weir_cancel_set(weir_cancel* cancel) {
  if (cancel != nullptr) cancel->is_set.store(true);
}

void weir_cancel_clear(weir_cancel* cancel) {
  if (cancel != nullptr) cancel->is_set.store(false);
}

weir_status weir_session_set_cancel(weir_session* session, weir_cancel* cancel) {
  WEIR_API_REQUIRE(session);
  return api::guard([&] { return session->set_cancel(cancel); });
}
