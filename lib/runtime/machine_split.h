// Sessions whose keys, values and attention stay on the host, while a device has the weights and computes everything
// else. To the rest of the library they are sessions on the processor. In each layer the rows of q, k and v come from
// the device and those of the output go there (DecoderWalk in models/decoder.cpp); they lie in staging memory.
// Prompts of some length are attended by the device, over pages that pass through it (models/attend_device.cpp).
#pragma once

#include "runtime/machine_host.h"
#include "runtime/module_rows.h"

namespace weir {

class SplitMachine final : public HostMachine {
 public:
  using HostMachine::HostMachine;
  Kind kind() const override { return Kind::kSplit; }
  void wipe_all() override;
  Status profile(weir_token token, double* seconds) override;
  uint32_t max_together() const override;

 private:
  void lay_out(SessionPools& pools) override;
  Status take_rows(const SessionPools& measured) override;

  ModuleRows rows_;
};

}  // namespace weir
