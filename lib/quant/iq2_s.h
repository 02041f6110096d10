// IQ2_S: 256 weights in sixteen sub-blocks of 16; a weight is (scale * (1 + 2 * sub-scale) / 8) times a magnitude, 8,
// 25 or 43, with a sign. The magnitudes of eight neighbours are one of 1024 entries of a grid. 82 bytes, 2.5625 bits a
// weight.
//   byte   0..1   scale, f16
//   byte   2..33  q[32], bits 0..7 of the entries' numbers
//   byte  34..65  signs[32]: bit i of signs[j] is set where weight 8j + i is negative
//   byte  66..73  high[8]: bits 2i..2i+1 of high[s] are bits 8..9 of entry 4s + i
//   byte  74..81  sub_scales[8]: bits 0..3 are sub-scale 2i, bits 4..7 sub-scale 2i+1
// The product has at most 11 + 5 + 6 significant bits, so it is exact in f32: every correct decoder gives the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/grid.h"
#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

inline constexpr uint16_t kIq2SGrid[1024] = {
#define G(even, odd) even, odd
#include "quant/iq2_s_grid.inc"
#undef G
};

struct [[gnu::packed]] BlockIQ2_S {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint8_t q[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t sub_scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82);
static_assert(offsetof(BlockIQ2_S, scale) == 0 && offsetof(BlockIQ2_S, q) == 2);
static_assert(offsetof(BlockIQ2_S, signs) == 34 && offsetof(BlockIQ2_S, high) == 66);
static_assert(offsetof(BlockIQ2_S, sub_scales) == 74);

inline void decode(const BlockIQ2_S& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t e = 0; e < 32; ++e) {
    const int sub = block.sub_scales[e / 4] >> (e / 2 % 2 * 4) & 15;
    const float step = 0.125f * scale * static_cast<float>(1 + 2 * sub);
    const uint32_t entry = kIq2SGrid[block.q[e] | (block.high[e / 4] >> (e % 4 * 2) & 3u) << 8];
    for (size_t k = 0; k < 8; ++k)
      out[8 * e + k] = with_sign(step * static_cast<float>(grid2_weight(entry, k)), block.signs[e], k);
  }
}

// Turns random bytes into a valid block: everything else stays uniform; the standard deviation is then 56.392 scales.
inline void make_random(BlockIQ2_S& block, float scale) { block.scale = f32_to_f16(scale / 56.392f); }

// Planes: [B][4] bytes of q; [B] words of signs in nibbles (grid.h); [B] bytes of high, [B] bytes of sub-scales; [B/8]
// f16 scales.
template <>
struct PlaneLayout<WeightType::kIQ2_S> {
  static constexpr uint32_t kBytes[] = {32, 32, 8, 8, 2};

  static void place(const BlockIQ2_S& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 4 * b, block.q, 32);
    place_signs(block.signs, signs_in_nibbles, out + 4 * n + 4 * b);
    std::memcpy(out + 8 * n + b, block.high, 8);
    std::memcpy(out + 9 * n + b, block.sub_scales, 8);
    std::memcpy(out + 10 * n + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
