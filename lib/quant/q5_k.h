// Q5_K: 256 weights in eight sub-blocks of 32; a weight is (scale * sub-scale) * q - (min_scale * sub-minimum), q in
// 0..31. 176 bytes, 5.5 bits a weight.
//   byte   0..1    scale, f16
//   byte   2..3    min_scale, f16
//   byte   4..15   sub-scales and sub-minimums, see k_scales.h
//   byte  16..47   high[32]: bit s of high[i] is bit 4 of weight i of sub-block s
//   byte  48..175  q[128]: bytes 32c .. 32c+31 hold bits 0..3 of sub-block 2c (low nibbles) and 2c+1 (high nibbles)
// Both products are exact in f32 (at most 11 + 6 + 5 significant bits), so only the subtraction rounds: every correct
// decoder gives the same bits, fused multiply-add or not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/half.h"
#include "quant/k_scales.h"

namespace weir {

struct [[gnu::packed]] BlockQ5_K {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint16_t min_scale;
  uint8_t sub_scales[12];
  uint8_t high[32];
  uint8_t q[128];
};
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(offsetof(BlockQ5_K, scale) == 0 && offsetof(BlockQ5_K, min_scale) == 2);
static_assert(offsetof(BlockQ5_K, sub_scales) == 4 && offsetof(BlockQ5_K, high) == 16 && offsetof(BlockQ5_K, q) == 48);

inline void decode(const BlockQ5_K& block, float* out) {
  const float scale = f16_to_f32(block.scale), min_scale = f16_to_f32(block.min_scale);
  for (size_t s = 0; s < 8; ++s) {
    const KScale k = k_scale(block.sub_scales, s);
    const float step = scale * static_cast<float>(k.scale), low = min_scale * static_cast<float>(k.minimum);
    const uint8_t* q = block.q + s / 2 * 32;
    for (size_t i = 0; i < 32; ++i) {
      const int quant = (q[i] >> (s % 2 * 4) & 15) | (block.high[i] >> s & 1) << 4;
      out[32 * s + i] = step * static_cast<float>(quant) - low;
    }
  }
}

// Turns random bytes into a valid block. Quants and sub-scales stay uniform. min_scale = 15.5 (the mean quant) times
// the scale centres the values, whose standard deviation is then 526.9 scales.
inline void make_random(BlockQ5_K& block, float scale) {
  block.scale = f32_to_f16(scale / 526.9f);
  block.min_scale = f32_to_f16(f16_to_f32(block.scale) * 15.5f);
}

}  // namespace weir
