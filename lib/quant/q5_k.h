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
#include <cstring>

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/planes.h"

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

// Planes: [B][16] nibbles as Q4_0 has them; [B] u32 whose bit i is bit 4 of weight i; [B/8][16] headers as Q4_K has
// them.
template <>
struct PlaneLayout<WeightType::kQ5_K> {
  static constexpr uint32_t kBytes[] = {128, 32, 16};

  static void place(const BlockQ5_K& block, size_t b, size_t n, uint8_t* out) {
    place_nibbles(block.q, b, out);
    for (size_t s = 0; s < 8; ++s) {
      uint32_t bits = 0;
      for (uint32_t i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(block.high[i] >> s & 1) << i;
      std::memcpy(out + 16 * n + 4 * (b + s), &bits, 4);
    }
    std::memcpy(out + 20 * n + 2 * b, &block, 16);
  }
};

}  // namespace weir
