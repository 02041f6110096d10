// What a device computes for a session whose attention is computed on the host.
#pragma once

#include "models/decoder.h"
#include "runtime/device_module.h"

namespace weir {

class ModuleRows final : public DeviceRows {
 public:
  const DeviceModule* module = nullptr;
  Status copy_in(void* device, const void* host, uint64_t bytes) override {
    return from_module(*module, module->enqueue_copy_in(device, host, bytes));
  }
  Status copy_out(void* host, const void* device, uint64_t bytes) override {
    return from_module(*module, module->enqueue_copy_out(host, device, bytes));
  }
  Status wait() override { return from_module(*module, module->wait()); }
  Status named(Status status) const override { return from_module(*module, status); }
};

}  // namespace weir
