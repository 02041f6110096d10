// Named combinations of policy, budget and options.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "weir/base.h"

namespace weir {

struct Preset {
  const char* name;
  const char* policy;                       // null: this version lacks it
  uint32_t budget_tokens;                   // 0: none
  const char* missing;                      // what this version lacks for it, or null
  std::span<const weir_key_value> options;  // static
};

// Errors: WEIR_ERR_NOT_FOUND listing the presets that exist, WEIR_ERR_UNSUPPORTED naming what this version lacks.
Status find_preset(const char* name, const Preset*& out);

}  // namespace weir
