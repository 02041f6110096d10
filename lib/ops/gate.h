// The numbers of the activations of a gated product (Gate in types.h).
#pragma once

namespace weir {

inline constexpr float kClampedMax = 7.0f, kClampedSteepness = 1.702f;
inline constexpr float kGelu1 = 1.59576912160573f, kGelu3 = 0.0713548162726009f;  // 2 u = kGelu1 * g + kGelu3 * g^3

}  // namespace weir
