// IQ2_XS: 256 weights in sixteen sub-blocks of 16; a weight is (scale * (1 + 2 * sub-scale) / 8) times a magnitude, 8,
// 25 or 43, with a sign. The magnitudes of eight neighbours are one of 512 entries of a grid. 74 bytes, 2.3125 bits a
// weight.
//   byte   0..1   scale, f16
//   byte   2..65  q[32], u16: bits 0..8 are the entry's number, bits 9..15 the signs of its weights (grid.h)
//   byte  66..73  sub_scales[8]: bits 0..3 are sub-scale 2i, bits 4..7 sub-scale 2i+1
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

inline constexpr uint16_t kIq2XsGrid[512] = {
#define G(even, odd) even, odd
#include "quant/iq2_xs_grid.inc"
#undef G
};

struct [[gnu::packed]] BlockIQ2_XS {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint16_t q[32];
  uint8_t sub_scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74);
static_assert(offsetof(BlockIQ2_XS, scale) == 0 && offsetof(BlockIQ2_XS, q) == 2);
static_assert(offsetof(BlockIQ2_XS, sub_scales) == 66);

inline void decode(const BlockIQ2_XS& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t e = 0; e < 32; ++e) {
    const int sub = block.sub_scales[e / 4] >> (e / 2 % 2 * 4) & 15;
    const float step = 0.125f * scale * static_cast<float>(1 + 2 * sub);
    const uint32_t entry = kIq2XsGrid[block.q[e] & 511], signs = even_signs(block.q[e] >> 9);
    for (size_t k = 0; k < 8; ++k)
      out[8 * e + k] = with_sign(step * static_cast<float>(grid2_weight(entry, k)), signs, k);
  }
}

// Turns random bytes into a valid block: everything else stays uniform; the standard deviation is then 55.900 scales.
inline void make_random(BlockIQ2_XS& block, float scale) { block.scale = f32_to_f16(scale / 55.900f); }

// Planes: [B][2] words: bits 0..7 of four entries' numbers; their signs in nibbles (grid.h), of which the last has
// their ninth bits. [B] bytes of sub-scales; [B/8] f16 scales.
template <>
struct PlaneLayout<WeightType::kIQ2_XS> {
  static constexpr uint32_t kBytes[] = {64, 8, 2};

  static void place(const BlockIQ2_XS& block, size_t b, size_t n, uint8_t* out) {
    for (size_t s = 0; s < 8; ++s) {
      uint32_t low = 0, signs = 0, ninth = 0;
      for (size_t i = 0; i < 4; ++i) {
        const uint32_t q = block.q[4 * s + i];
        low |= (q & 255u) << 8 * i;
        signs |= q >> 9 << 8 * i;
        ninth |= (q >> 8 & 1u) << i;
      }
      const uint32_t words[2] = {low, signs_in_nibbles(signs) | ninth << 28};
      std::memcpy(out + 8 * (b + s), words, 8);
    }
    std::memcpy(out + 8 * n + b, block.sub_scales, 8);
    std::memcpy(out + 9 * n + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
