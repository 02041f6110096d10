// Q4_K: 256 weights in eight sub-blocks of 32; a weight is (scale * sub-scale) * q - (min_scale * sub-minimum), q in
// 0..15. 144 bytes, 4.5 bits a weight.
//   byte   0..1    scale, f16
//   byte   2..3    min_scale, f16
//   byte   4..15   sub-scales and sub-minimums, see k_scales.h
//   byte  16..143  q[128]: bytes 32c .. 32c+31 hold sub-block 2c in their low and 2c+1 in their high four bits
// Both products are exact in f32 (at most 11 + 6 + 4 significant bits), so only the subtraction rounds: every correct
// decoder gives the same bits, fused multiply-add or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/k_scales.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ4_K {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint16_t min_scale;
  uint8_t sub_scales[12];
  uint8_t q[128];
};
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(offsetof(BlockQ4_K, scale) == 0 && offsetof(BlockQ4_K, min_scale) == 2);
static_assert(offsetof(BlockQ4_K, sub_scales) == 4 && offsetof(BlockQ4_K, q) == 16);

inline void decode(const BlockQ4_K& block, float* out) {
  const float scale = f16_to_f32(block.scale), min_scale = f16_to_f32(block.min_scale);
  for (size_t s = 0; s < 8; ++s) {
    const KScale k = k_scale(block.sub_scales, s);
    const float step = scale * static_cast<float>(k.scale), low = min_scale * static_cast<float>(k.minimum);
    const uint8_t* q = block.q + s / 2 * 32;
    for (size_t i = 0; i < 32; ++i) out[32 * s + i] = step * static_cast<float>(q[i] >> (s % 2 * 4) & 15) - low;
  }
}

// Turns random bytes into a valid block. Quants and sub-scales stay uniform. min_scale = 7.5 (the mean quant) times the
// scale centres the values, whose standard deviation is then 258.3 scales.
inline void make_random(BlockQ4_K& block, float scale) {
  block.scale = f32_to_f16(scale / 258.3f);
  block.min_scale = f32_to_f16(f16_to_f32(block.scale) * 7.5f);
}

// Planes: [B][16] nibbles as Q4_0 has them; [B/8][16] headers: f16 scale, f16 min_scale, 12 bytes of sub-scales
// (quant/k_scales.h).
template <>
struct PlaneLayout<WeightType::kQ4_K> {
  static constexpr uint32_t kBytes[] = {128, 16};

  static void place(const BlockQ4_K& block, size_t b, size_t n, uint8_t* out) {
    place_nibbles(block.q, b, out);
    // Header b / 8, 16 bytes: scale, min_scale and sub-scales come first in the block.
    std::memcpy(out + 16 * n + 2 * b, &block, 16);
  }
};

}  // namespace weir
