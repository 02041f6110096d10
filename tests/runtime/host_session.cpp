// Recording and repeating the steps of a session of the test module, and of several at once.
#include "tests/runtime/host_session.h"

#include <algorithm>

namespace weir::host_module {

Status HostSession::create() {
  WEIR_TRY(host_queue_.create());
  WEIR_TRY(prepare());
  WEIR_TRY(record(alone(false, kAllParts), all_pages_));
  return a_.rules.selects ? record(alone(true, kAllParts), selected_) : Status();
}

Status HostSession::record(const SessionGroup& group, HostQueue::Recording& out) {
  host_queue_.begin_recording();
  const Status status = enqueue_step(group);
  out = host_queue_.end_recording();
  return status;
}

Status HostSession::launch_step(bool selects) { return host_queue_.launch(selects ? selected_ : all_pages_); }

Status HostSession::profile_step(int32_t, double*) {
  return fail(WEIR_ERR_UNSUPPORTED, "this module measures nothing");
}

SessionGroup HostSession::together(DeviceSession* const* sessions, uint32_t n) {
  SessionGroup group;
  group.n = n;
  for (uint32_t i = 0; i < n; ++i) {
    auto* const session = static_cast<HostSession*>(sessions[i]);
    group.session[i] = session;
    group.selects[i] = session->selects_now();
  }
  return group;
}

bool HostSession::is_same(const SessionGroup& a, const SessionGroup& b) {
  return a.n == b.n && std::equal(a.session, a.session + a.n, b.session) &&
         std::equal(a.selects, a.selects + a.n, b.selects);
}

Status HostSession::prepare_together(const SessionGroup& group) {
  joint_of_ = group;
  return note_all(group, record(group, joint_));
}

Status HostSession::step_together(const SessionGroup& group, const int32_t* tokens) {
  if (!is_same(group, joint_of_)) return fail(WEIR_ERR_INTERNAL, "a step of %u sessions was not prepared", group.n);
  WEIR_TRY(open_step(group, tokens));
  // The step is in the leader's queue, and waits for no other.
  for (uint32_t i = 1; i < group.n; ++i) {
    if (static_cast<HostSession*>(group.session[i])->host_queue_.has_work())
      return fail(WEIR_ERR_INTERNAL, "session %u of a joint step has work in its own queue", i);
  }
  return close_step(group, host_queue_.launch(joint_));
}

}  // namespace weir::host_module
