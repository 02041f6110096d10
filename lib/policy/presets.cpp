// The table of presets.
#include "policy/presets.h"

#include <cstring>
#include <iterator>

namespace weir {

// The pairs of a preset in static memory; an empty list is allowed.
#define WEIR_PRESET_WITH(name, policy, budget, spill_flags, ...)                               \
  []() -> Preset {                                                                             \
    static constexpr weir_key_value kPairs[] = {__VA_ARGS__ __VA_OPT__(, ){nullptr, nullptr}}; \
    return {name, policy, budget, spill_flags, std::span(kPairs, std::size(kPairs) - 1)};      \
  }(),
#define WEIR_PRESET(name, policy, budget, ...) WEIR_PRESET_WITH(name, policy, budget, 0, __VA_ARGS__)

std::span<const Preset> presets() {
  static const Preset kPresets[] = {
#include "policy/presets.inc"
  };
  return kPresets;
}

#undef WEIR_PRESET
#undef WEIR_PRESET_WITH

namespace {

constexpr char kNames[] =
#define WEIR_PRESET(name, ...) " " name
#define WEIR_PRESET_WITH(name, ...) " " name
#include "policy/presets.inc"
#undef WEIR_PRESET
#undef WEIR_PRESET_WITH
    ;

}  // namespace

Status find_preset(const char* name, const Preset*& out) {
  for (const Preset& preset : presets()) {
    if (std::strcmp(preset.name, name) != 0) continue;
    out = &preset;
    return {};
  }
  return fail(WEIR_ERR_NOT_FOUND, "no preset \"%.64s\"; there are:%s", name, kNames);
}

}  // namespace weir
