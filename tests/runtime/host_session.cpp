// A session of the test module: no decode steps so far.
#include "tests/runtime/host_session.h"

namespace weir::host_module {

Status HostSession::create() {
  WEIR_TRY(host_queue_.create());
  return prepare();
}

Status HostSession::launch_step(bool) { return fail(WEIR_ERR_UNSUPPORTED, "this module computes no steps"); }

Status HostSession::profile_step(int32_t, double*) {
  return fail(WEIR_ERR_UNSUPPORTED, "this module measures nothing");
}

}  // namespace weir::host_module
