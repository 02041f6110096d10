// BF16: the upper 16 bits of an IEEE 754 f32, little-endian, a "block" of one weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockBF16 {
  static constexpr size_t kWeights = 1;
  uint16_t bits;
};
static_assert(sizeof(BlockBF16) == 2);

inline void decode(const BlockBF16& block, float* out) { *out = bf16_to_f32(block.bits); }

inline void encode(const float* in, BlockBF16& block) { block.bits = f32_to_bf16(*in); }

// Turns random bits into a weight, uniform in +-sqrt(3) * scale, so that the standard deviation is `scale`.
inline void make_random(BlockBF16& block, float scale) {
  const float unit = (static_cast<float>(block.bits) - 32767.5f) * 0x1p-15f;
  block.bits = f32_to_bf16(unit * 1.7320508f * scale);
}

// One plane: rows as in the file.
template <>
struct PlaneLayout<WeightType::kBF16> {
  static constexpr uint32_t kBytes[] = {512};
};

}  // namespace weir
