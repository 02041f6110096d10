#include "vulkan/rope_turns.h"

#include <cmath>

namespace weir::vulkan {
namespace {

// 1 / (2 pi) in two parts.
constexpr double kTurns = 0x1.45f306dc9c883p-3, kTurnsRest = -0x1.6b01ec5417056p-57;

uint64_t turns(double radians) {
  const double whole = radians * kTurns;
  const double rest = std::fma(radians, kTurns, -whole) + radians * kTurnsRest;
  // Differences from the nearest integers are exact, so the two halves of the result lose nothing.
  const double high = (whole - std::nearbyint(whole)) * 0x1p32, low = high - std::nearbyint(high) + rest * 0x1p32;
  return (static_cast<uint64_t>(static_cast<int64_t>(std::nearbyint(high))) << 32) +
         static_cast<uint64_t>(static_cast<int64_t>(std::nearbyint(low * 0x1p32)));
}

}  // namespace

void turns_of(std::span<const double> radians, uint64_t* out) {
  for (size_t i = 0; i < radians.size(); ++i) out[i] = turns(radians[i]);
}

}  // namespace weir::vulkan
