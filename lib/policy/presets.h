// Named combinations of policy, budget and options.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "weir/session.h"

namespace weir {

struct Preset {
  const char* name;
  const char* policy;
  uint32_t budget_tokens;                   // 0: none
  uint32_t spill_flags;                     // WEIR_SPILL_HALF, or 0
  std::span<const weir_key_value> options;  // static
};

std::span<const Preset> presets();
// Errors: WEIR_ERR_NOT_FOUND listing the presets that exist.
Status find_preset(const char* name, const Preset*& out);

}  // namespace weir
