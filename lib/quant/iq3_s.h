// IQ3_S: 256 weights in eight sub-blocks of 32; a weight is (scale * (1 + 2 * sub-scale)) times a magnitude, an odd
// number up to 15, with a sign. The magnitudes of four neighbours are one of 512 entries of a grid. 110 bytes, 3.4375
// bits a weight.
//   byte    0..1    scale, f16
//   byte    2..65   q[64], bits 0..7 of the entries' numbers
//   byte   66..73   high[8]: bit i of high[s] is bit 8 of entry 8s + i
//   byte   74..105  signs[32]: bit i of signs[j] is set where weight 8j + i is negative
//   byte  106..109  sub_scales[4]: bits 0..3 are sub-scale 2i, bits 4..7 sub-scale 2i+1
// The product has at most 11 + 5 + 4 significant bits, so it is exact in f32: every correct decoder gives the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/grid.h"
#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

inline constexpr uint8_t kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr uint16_t kIq3SGrid[512] = {
#define G(even, odd) even, odd
#include "quant/iq3_s_grid.inc"
#undef G
};

struct [[gnu::packed]] BlockIQ3_S {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint8_t q[64];
  uint8_t high[8];
  uint8_t signs[32];
  uint8_t sub_scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110);
static_assert(offsetof(BlockIQ3_S, scale) == 0 && offsetof(BlockIQ3_S, q) == 2);
static_assert(offsetof(BlockIQ3_S, high) == 66 && offsetof(BlockIQ3_S, signs) == 74);
static_assert(offsetof(BlockIQ3_S, sub_scales) == 106);

inline void decode(const BlockIQ3_S& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t e = 0; e < 64; ++e) {
    const int sub = block.sub_scales[e / 16] >> (e / 8 % 2 * 4) & 15;
    const float step = scale * static_cast<float>(1 + 2 * sub);
    const uint32_t entry = kIq3SGrid[block.q[e] | (block.high[e / 8] >> (e % 8) & 1u) << 8];
    for (size_t k = 0; k < 4; ++k) {
      const float value = step * static_cast<float>(grid3_weight(kIq3SValues, entry, k));
      out[4 * e + k] = with_sign(value, block.signs[e / 2], e % 2 * 4 + k);
    }
  }
}

// Turns random bytes into a valid block: everything else stays uniform; the standard deviation is then 140.24 scales.
inline void make_random(BlockIQ3_S& block, float scale) { block.scale = f32_to_f16(scale / 140.24f); }

// Planes: [B][8] bytes of q; [B] words of signs in bytes (grid.h), [B] bytes of high; [B/8] words of sub-scales, [B/8]
// f16 scales.
template <>
struct PlaneLayout<WeightType::kIQ3_S> {
  static constexpr uint32_t kBytes[] = {64, 32, 8, 4, 2};

  static void place(const BlockIQ3_S& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 8 * b, block.q, 64);
    place_signs(block.signs, signs_in_bytes, out + 8 * n + 4 * b);
    std::memcpy(out + 12 * n + b, block.high, 8);
    std::memcpy(out + 13 * n + b / 2, block.sub_scales, 4);
    std::memcpy(out + 13 * n + n / 2 + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
