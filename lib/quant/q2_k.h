// Q2_K: 256 weights in sixteen sub-blocks of 16; a weight is (scale * sub-scale) * q - (min_scale * sub-minimum), q in
// 0..3. 84 bytes, 2.625 bits a weight.
//   byte   0..15  sub_scales[16]: the low four bits are the sub-scale, the high four bits the sub-minimum
//   byte  16..79  q[64]: each half h of 128 weights has q[32h ..]; weight i of its quarter k of 32 weights lies in bits
//                 2k..2k+1 of q[32h + i]
//   byte  80..81  scale, f16
//   byte  82..83  min_scale, f16
// Both products are exact in f32 (at most 11 + 4 + 2 significant bits), so only the subtraction rounds: every correct
// decoder gives the same bits, fused multiply-add or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ2_K {
  static constexpr size_t kWeights = 256;
  uint8_t sub_scales[16];
  uint8_t q[64];
  uint16_t scale;
  uint16_t min_scale;
};
static_assert(sizeof(BlockQ2_K) == 84);
static_assert(offsetof(BlockQ2_K, sub_scales) == 0 && offsetof(BlockQ2_K, q) == 16);
static_assert(offsetof(BlockQ2_K, scale) == 80 && offsetof(BlockQ2_K, min_scale) == 82);

inline void decode(const BlockQ2_K& block, float* out) {
  const float scale = f16_to_f32(block.scale), min_scale = f16_to_f32(block.min_scale);
  for (size_t s = 0; s < 16; ++s) {
    const float step = scale * static_cast<float>(block.sub_scales[s] & 15);
    const float low = min_scale * static_cast<float>(block.sub_scales[s] >> 4);
    const uint8_t* q = block.q + s / 8 * 32 + s % 2 * 16;
    for (size_t i = 0; i < 16; ++i) out[16 * s + i] = step * static_cast<float>(q[i] >> (s / 2 % 4 * 2) & 3) - low;
  }
}

// Turns random bytes into a valid block. Quants, sub-scales and sub-minimums stay uniform. min_scale = 1.5 (the mean
// quant) times the scale centres the values, whose standard deviation is then 13.874 scales.
inline void make_random(BlockQ2_K& block, float scale) {
  block.scale = f32_to_f16(scale / 13.874f);
  block.min_scale = f32_to_f16(f16_to_f32(block.scale) * 1.5f);
}

// Planes: [B][2] words, of which bits 2w..2w+1 of byte k of word h belong to weight 16h + 4w + k; [B][2] bytes of
// sub-scale and sub-minimum, as in the file; [B/8] pairs of f16: scale and min_scale.
template <>
struct PlaneLayout<WeightType::kQ2_K> {
  static constexpr uint32_t kBytes[] = {64, 16, 4};

  static void place(const BlockQ2_K& block, size_t b, size_t n, uint8_t* out) {
    for (size_t s = 0; s < 8; ++s) {
      uint32_t words[2] = {};
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t bits = block.q[s / 4 * 32 + i] >> (s % 4 * 2) & 3u, word = i / 4 % 4, byte = i % 4;
        words[i / 16] |= bits << (8 * byte + 2 * word);
      }
      std::memcpy(out + 8 * (b + s), words, 8);
    }
    std::memcpy(out + 8 * n + 2 * b, block.sub_scales, 16);
    std::memcpy(out + 10 * n + b / 2, &block.scale, 4);  // min_scale follows
  }
};

}  // namespace weir
