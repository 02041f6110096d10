// IQ3_XXS: 256 weights in eight sub-blocks of 32; a weight is (scale * (1 + 2 * sub-scale) / 4) times a magnitude, an
// even number from 4 to 62, with a sign. The magnitudes of four neighbours are one of 256 entries of a grid. 98 bytes,
// 3.0625 bits a weight.
//   byte   0..1   scale, f16
//   byte   2..65  q[64], the entries' numbers
//   byte  66..97  sub[8], u32, one for each sub-block: four signs of seven bits (grid.h), of eight weights each, from
//                 bit 0 on; bits 28..31 are the sub-scale
// The magnitudes are kept halved. The product has at most 11 + 5 + 5 significant bits, so it is exact in f32: every
// correct decoder gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/grid.h"
#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

inline constexpr uint8_t kIq3XxsValues[8] = {2, 6, 10, 14, 18, 22, 26, 31};  // halves
inline constexpr uint16_t kIq3XxsGrid[256] = {
#define G(even, odd) even, odd
#include "quant/iq3_xxs_grid.inc"
#undef G
};

struct [[gnu::packed]] BlockIQ3_XXS {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint8_t q[64];
  uint32_t sub[8];
};
static_assert(sizeof(BlockIQ3_XXS) == 98);
static_assert(offsetof(BlockIQ3_XXS, scale) == 0 && offsetof(BlockIQ3_XXS, q) == 2);
static_assert(offsetof(BlockIQ3_XXS, sub) == 66);

inline void decode(const BlockIQ3_XXS& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t s = 0; s < 8; ++s) {
    const float step = 0.5f * scale * static_cast<float>(1 + 2 * (block.sub[s] >> 28));
    const uint32_t signs = even_signs(block.sub[s]);
    for (size_t i = 0; i < 32; ++i) {
      const int weight = grid3_weight(kIq3XxsValues, kIq3XxsGrid[block.q[8 * s + i / 4]], i % 4);
      out[32 * s + i] = with_sign(step * static_cast<float>(weight), signs, i);
    }
  }
}

// Turns random bytes into a valid block: everything else stays uniform; the standard deviation is then 142.41 scales.
inline void make_random(BlockIQ3_XXS& block, float scale) { block.scale = f32_to_f16(scale / 142.41f); }

// Planes: [B][8] bytes of q; [B] words of signs in bytes (grid.h), whose last nibble is the sub-scale; [B/8] f16
// scales.
template <>
struct PlaneLayout<WeightType::kIQ3_XXS> {
  static constexpr uint32_t kBytes[] = {64, 32, 2};

  static void place(const BlockIQ3_XXS& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 8 * b, block.q, 64);
    for (size_t s = 0; s < 8; ++s) {
      const uint32_t signs = signs_in_bytes(sevens_in_bytes(block.sub[s])) | (block.sub[s] & 0xF0000000u);
      std::memcpy(out + 8 * n + 4 * (b + s), &signs, 4);
    }
    std::memcpy(out + 12 * n + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
