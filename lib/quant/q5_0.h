// Q5_0: 32 weights share one f16 scale; each is a 5-bit number 0..31, less 16, times the scale. 22 bytes, 5.5 bits a
// weight.
//   byte  0..1   scale, f16
//   byte  2..5   high, u32: bit i is bit 4 of weight i
//   byte  6..21  q[16]: the low four bits of q[i] are bits 0..3 of weight i, the high four bits those of weight i + 16
// The product has at most 11 + 4 significant bits, so it is exact in f32: every correct decoder gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ5_0 {
  static constexpr size_t kWeights = 32;
  uint16_t scale;
  uint32_t high;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(offsetof(BlockQ5_0, scale) == 0 && offsetof(BlockQ5_0, high) == 2 && offsetof(BlockQ5_0, q) == 6);

inline void decode(const BlockQ5_0& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t low = (block.q[i] & 15u) | (block.high >> i & 1u) << 4;
    const uint32_t high = uint32_t{block.q[i]} >> 4 | (block.high >> (i + 16) & 1u) << 4;
    out[i] = scale * static_cast<float>(static_cast<int32_t>(low) - 16);
    out[i + 16] = scale * static_cast<float>(static_cast<int32_t>(high) - 16);
  }
}

// Turns random bytes into a valid block: quants stay uniform (root mean square 9.247); the scale keeps its random sign,
// so that the mean is 0.
inline void make_random(BlockQ5_0& block, float scale) {
  block.scale = static_cast<uint16_t>(f32_to_f16(scale / 9.247f) | (block.scale & 0x8000u));
}

// Planes: [B][16] nibbles as Q4_0 has them; [B] u32 whose bit i is bit 4 of weight i; [B] f16 scales.
template <>
struct PlaneLayout<WeightType::kQ5_0> {
  static constexpr uint32_t kBytes[] = {128, 32, 16};

  static void place(const BlockQ5_0& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 16 * b, block.q, 16);
    std::memcpy(out + 16 * n + 4 * b, &block.high, 4);
    std::memcpy(out + 20 * n + 2 * b, &block.scale, 2);
  }
};

}  // namespace weir
