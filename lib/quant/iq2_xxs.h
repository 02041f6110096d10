// IQ2_XXS: 256 weights in eight sub-blocks of 32; a weight is (scale * (1 + 2 * sub-scale) / 8) times a magnitude, 8,
// 25 or 43, with a sign. The magnitudes of eight neighbours are one of 256 entries of a grid. 66 bytes, 2.0625 bits a
// weight.
//   byte  0..1   scale, f16
//   byte  2..65  sub[8], for each sub-block: q[4], the entries' numbers; then u32: four signs of seven bits (grid.h),
//                of eight weights each, from bit 0 on; bits 28..31 are the sub-scale
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

inline constexpr uint16_t kIq2XxsGrid[256] = {
#define G(even, odd) even, odd
#include "quant/iq2_xxs_grid.inc"
#undef G
};

struct [[gnu::packed]] BlockIQ2_XXS {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  struct [[gnu::packed]] {
    uint8_t q[4];
    uint32_t word;
  } sub[8];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);
static_assert(offsetof(BlockIQ2_XXS, scale) == 0 && offsetof(BlockIQ2_XXS, sub) == 2);

inline void decode(const BlockIQ2_XXS& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t s = 0; s < 8; ++s) {
    const float step = 0.125f * scale * static_cast<float>(1 + 2 * (block.sub[s].word >> 28));
    const uint32_t signs = even_signs(block.sub[s].word);
    for (size_t i = 0; i < 32; ++i) {
      const int weight = grid2_weight(kIq2XxsGrid[block.sub[s].q[i / 8]], i % 8);
      out[32 * s + i] = with_sign(step * static_cast<float>(weight), signs, i);
    }
  }
}

// Turns random bytes into a valid block: everything else stays uniform; the standard deviation is then 53.362 scales.
inline void make_random(BlockIQ2_XXS& block, float scale) { block.scale = f32_to_f16(scale / 53.362f); }

// Planes: [B][2] words: four bytes of q; signs in nibbles (grid.h), of which the last is the sub-scale. [B/8] f16
// scales.
template <>
struct PlaneLayout<WeightType::kIQ2_XXS> {
  static constexpr uint32_t kBytes[] = {64, 2};

  static void place(const BlockIQ2_XXS& block, size_t b, size_t n, uint8_t* out) {
    for (size_t s = 0; s < 8; ++s) {
      const uint32_t word = block.sub[s].word;
      const uint32_t signs = signs_in_nibbles(sevens_in_bytes(word)) | (word & 0xF0000000u);
      std::memcpy(out + 8 * (b + s), block.sub[s].q, 4);
      std::memcpy(out + 8 * (b + s) + 4, &signs, 4);
    }
    std::memcpy(out + 8 * n + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
