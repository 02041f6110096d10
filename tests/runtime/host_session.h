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

 private:
  Status launch_step(bool selects) override;

  HostQueue host_queue_{a_.cx};
};

}  // namespace weir::host_module
