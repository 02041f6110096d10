// Q5_1: 32 weights share an f16 scale and an f16 minimum; each is a 5-bit number 0..31 times the scale, plus the
// minimum. 24 bytes, 6 bits a weight.
//   byte  0..1   scale, f16
//   byte  2..3   minimum, f16
//   byte  4..7   high, u32: bit i is bit 4 of weight i
//   byte  8..23  q[16]: the low four bits of q[i] are bits 0..3 of weight i, the high four bits those of weight i + 16
// The product is exact in f32 (at most 11 + 5 significant bits), so only the addition rounds: every correct decoder
// gives the same bits, fused multiply-add or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ5_1 {
  static constexpr size_t kWeights = 32;
  uint16_t scale;
  uint16_t minimum;
  uint32_t high;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(offsetof(BlockQ5_1, scale) == 0 && offsetof(BlockQ5_1, minimum) == 2);
static_assert(offsetof(BlockQ5_1, high) == 4 && offsetof(BlockQ5_1, q) == 8);

inline void decode(const BlockQ5_1& block, float* out) {
  const float scale = f16_to_f32(block.scale), minimum = f16_to_f32(block.minimum);
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t low = (block.q[i] & 15u) | (block.high >> i & 1u) << 4;
    const uint32_t high = uint32_t{block.q[i]} >> 4 | (block.high >> (i + 16) & 1u) << 4;
    out[i] = scale * static_cast<float>(low) + minimum;
    out[i + 16] = scale * static_cast<float>(high) + minimum;
  }
}

// Turns random bytes into a valid block: quants stay uniform (deviation 9.233); the scale keeps its random sign. A
// minimum of -15.5 scales (the mean quant) centres the values.
inline void make_random(BlockQ5_1& block, float scale) {
  block.scale = static_cast<uint16_t>(f32_to_f16(scale / 9.233f) | (block.scale & 0x8000u));
  block.minimum = f32_to_f16(f16_to_f32(block.scale) * -15.5f);
}

// Planes: [B][16] nibbles as Q4_0 has them; [B] u32 whose bit i is bit 4 of weight i; [B] pairs of f16: scale and
// minimum.
template <>
struct PlaneLayout<WeightType::kQ5_1> {
  static constexpr uint32_t kBytes[] = {128, 32, 32};

  static void place(const BlockQ5_1& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 16 * b, block.q, 16);
    std::memcpy(out + 16 * n + 4 * b, &block.high, 4);
    std::memcpy(out + 20 * n + 4 * b, &block, 4);  // scale and minimum come first in the block
  }
};

}  // namespace weir
