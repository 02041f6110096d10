// Q4_1: 32 weights share an f16 scale and an f16 minimum; each is a 4-bit number 0..15 times the scale, plus the
// minimum. 20 bytes, 5 bits a weight.
//   byte  0..1   scale, f16
//   byte  2..3   minimum, f16
//   byte  4..19  q[16]: the low four bits of q[i] are weight i, the high four bits weight i + 16
// The product is exact in f32 (at most 11 + 4 significant bits), so only the addition rounds: every correct decoder
// gives the same bits, fused multiply-add or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ4_1 {
  static constexpr size_t kWeights = 32;
  uint16_t scale;
  uint16_t minimum;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(offsetof(BlockQ4_1, scale) == 0 && offsetof(BlockQ4_1, minimum) == 2 && offsetof(BlockQ4_1, q) == 4);

inline void decode(const BlockQ4_1& block, float* out) {
  const float scale = f16_to_f32(block.scale), minimum = f16_to_f32(block.minimum);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(block.q[i] & 15) + minimum;
    out[i + 16] = scale * static_cast<float>(block.q[i] >> 4) + minimum;
  }
}

// Turns random bytes into a valid block: quants stay uniform (deviation 4.610); the scale keeps its random sign. A
// minimum of -7.5 scales (the mean quant) centres the values.
inline void make_random(BlockQ4_1& block, float scale) {
  block.scale = static_cast<uint16_t>(f32_to_f16(scale / 4.610f) | (block.scale & 0x8000u));
  block.minimum = f32_to_f16(f16_to_f32(block.scale) * -7.5f);
}

// Planes: [B][16] nibbles as Q4_0 has them; [B] pairs of f16: scale and minimum.
template <>
struct PlaneLayout<WeightType::kQ4_1> {
  static constexpr uint32_t kBytes[] = {128, 32};

  static void place(const BlockQ4_1& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 16 * b, block.q, 16);
    std::memcpy(out + 16 * n + 4 * b, &block, 4);  // scale and minimum come first in the block
  }
};

}  // namespace weir
