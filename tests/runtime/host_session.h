// A session of the test module: lib/device on a queue of the processor.
#pragma once

#include "device/base_session.h"
#include "tests/runtime/host_queue.h"

namespace weir::host_module {

// What steps and kernels find in DeviceBuffers::module; they may write anything there.
inline constexpr uint64_t kModuleBytes = 256;

class HostSession final : public BaseSession {
 public:
  HostSession(const DeviceSessionArgs& args, const OpTable& ops) : BaseSession(args, host_queue_, ops) {}
  Status create();
  Status profile_step(int32_t token, double* seconds) override;

  // DeviceModule::prepare_many and step_many.
  static SessionGroup together(DeviceSession* const* sessions, uint32_t n);
  Status prepare_together(const SessionGroup& group);
  Status step_together(const SessionGroup& group, const int32_t* tokens);

 private:
  Status launch_step(bool selects) override;
  Status record(const SessionGroup& group, HostQueue::Recording& out);
  static bool is_same(const SessionGroup& a, const SessionGroup& b);

  HostQueue host_queue_{a_.cx};
  HostQueue::Recording all_pages_, selected_, joint_;
  SessionGroup joint_of_;  // the last group that this session was prepared to lead
};

}  // namespace weir::host_module
