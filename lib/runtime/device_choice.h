// Which device a session runs on.
#pragma once

#include "runtime/session_setup.h"

namespace weir {

bool lets_pages_go(const StepRules& rules);
// Whether a store keeps copies of what leaves for good.
bool may_keep_copies(const PolicyNeeds& needs, const StepRules& rules);

struct BackendRequest {
  const weir_session_options& options;
  const Model& model;
  const PolicyNeeds& needs;
  bool head_windows;  // streams have windows of their own
  const DeviceHost& devices;
  const DeviceWeights& weights;  // the model's
};

// The backend that the options ask for, into backend, module and rows of `setup`, whose rules are set. Attention is
// computed on the host if the options say so, or the policy knows no other way.
Status find_backend(const BackendRequest& request, SessionSetup& setup);

// The devices of Vulkan that WEIR_DEVICE_AUTO tries for a model of so many bytes: indices in [n], best first; returns
// how many. `wanted`: the only one that may be taken, or DeviceHost::kWanted.
uint32_t auto_order(const ListedDevice* devices, uint32_t n, uint32_t wanted, uint64_t weight_bytes, uint32_t* out);

}  // namespace weir
