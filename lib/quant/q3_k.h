// Q3_K: 256 weights in sixteen sub-blocks of 16; a weight is (scale * (sub-scale - 32)) * (q - 4), q in 0..7. 110
// bytes, 3.4375 bits a weight.
//   byte    0..31   high[32], bit 2 of the quants, see below
//   byte   32..95   low[64], bits 0..1 of the quants, see below
//   byte   96..107  sub_scales[12]: bits 0..3 of sub-scales 0..7 are the low four bits of bytes 0..7, those of
//                   sub-scales 8..15 their high four bits; bits 4..5 of sub-scale s are bits 2(s/4)..2(s/4)+1 of byte
//                   8 + s % 4
//   byte  108..109  scale, f16
// Each half h of 128 weights has low[32h ..]. Weight i of its quarter k of 32 weights lies in bits 2k..2k+1 of
// low[32h + i], and in bit 4h + k of high[i]. The product has at most 11 + 5 + 2 significant bits, so it is exact in
// f32: every correct decoder gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/half.h"

namespace weir {

struct [[gnu::packed]] BlockQ3_K {
  static constexpr size_t kWeights = 256;
  uint8_t high[32];
  uint8_t low[64];
  uint8_t sub_scales[12];
  uint16_t scale;
};
static_assert(sizeof(BlockQ3_K) == 110);
static_assert(offsetof(BlockQ3_K, high) == 0 && offsetof(BlockQ3_K, low) == 32);
static_assert(offsetof(BlockQ3_K, sub_scales) == 96 && offsetof(BlockQ3_K, scale) == 108);

// Sub-scale s, 0..63: 32 more than what the scale is multiplied by.
constexpr int q3_k_sub_scale(const uint8_t* packed, size_t s) {
  return (packed[s % 8] >> (s / 8 * 4) & 15) | (packed[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
}

inline void decode(const BlockQ3_K& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t quarter = 0; quarter < 8; ++quarter) {  // of 32 weights; k is its index inside its half
    const size_t half = quarter / 4, k = quarter % 4;
    for (size_t i = 0; i < 32; ++i) {
      const int quant = (block.low[32 * half + i] >> (2 * k) & 3) | (block.high[i] >> quarter & 1) << 2;
      const float step = scale * static_cast<float>(q3_k_sub_scale(block.sub_scales, 2 * quarter + i / 16) - 32);
      out[32 * quarter + i] = step * static_cast<float>(quant - 4);
    }
  }
}

// Turns random bytes into a valid block: quants and signed sub-scales stay uniform; the standard deviation is then
// 43.339 scales.
inline void make_random(BlockQ3_K& block, float scale) { block.scale = f32_to_f16(scale / 43.339f); }

}  // namespace weir
