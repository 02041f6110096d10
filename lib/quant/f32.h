// F32: plain little-endian IEEE 754 floats, a "block" of one weight. Norms and biases are of this type in nearly every
// file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockF32 {
  static constexpr size_t kWeights = 1;
  float value;
};
static_assert(sizeof(BlockF32) == 4);

inline void decode(const BlockF32& block, float* out) { *out = block.value; }

inline void encode(const float* in, BlockF32& block) { block.value = *in; }

// Turns random bits into a weight, uniform in +-sqrt(3) * scale, so that the standard deviation is `scale`.
inline void make_random(BlockF32& block, float scale) {
  const auto bits = std::bit_cast<int32_t>(block);
  block.value = static_cast<float>(bits) * 0x1p-31f * 1.7320508f * scale;
}

// One plane: rows as in the file.
template <>
struct PlaneLayout<WeightType::kF32> {
  static constexpr uint32_t kBytes[] = {1024};
};

}  // namespace weir
