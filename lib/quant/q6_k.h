// Q6_K: 256 weights in sixteen sub-blocks of 16; a weight is (scale * sub-scale) * (q - 32), q in 0..63. 210 bytes,
// 6.5625 bits a weight.
//   byte    0..127  low[128], bits 0..3 of the quants, see below
//   byte  128..191  high[64], bits 4..5 of the quants, see below
//   byte  192..207  sub_scales[16], signed bytes
//   byte  208..209  scale, f16
// Each half h of 128 weights has low[64h ..] and high[32h ..]. Its four quarters k of 32 weights lie, for weight i of
// the quarter, in low[64h + 32(k % 2) + i] (the low four bits for k < 2, else the high four) and in bits 2k..2k+1 of
// high[32h + i]. The product has at most 11 + 7 + 5 significant bits, so it is exact in f32: every correct decoder
// gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ6_K {
  static constexpr size_t kWeights = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t sub_scales[16];
  uint16_t scale;
};
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(offsetof(BlockQ6_K, low) == 0 && offsetof(BlockQ6_K, high) == 128);
static_assert(offsetof(BlockQ6_K, sub_scales) == 192 && offsetof(BlockQ6_K, scale) == 208);

inline void decode(const BlockQ6_K& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t quarter = 0; quarter < 8; ++quarter) {  // of 32 weights; k is its index inside its half
    const size_t half = quarter / 4, k = quarter % 4;
    const uint8_t* low = block.low + 64 * half + 32 * (k % 2);
    const uint8_t* high = block.high + 32 * half;
    for (size_t i = 0; i < 32; ++i) {
      const int quant = (low[i] >> (k / 2 * 4) & 15) | (high[i] >> (2 * k) & 3) << 4;
      const float step = scale * static_cast<float>(block.sub_scales[2 * quarter + i / 16]);
      out[32 * quarter + i] = step * static_cast<float>(quant - 32);
    }
  }
}

// Turns random bytes into a valid block: quants and signed sub-scales stay uniform; the standard deviation is then
// 1365.7 scales.
inline void make_random(BlockQ6_K& block, float scale) { block.scale = f32_to_f16(scale / 1365.7f); }

// Planes: [B][16] nibbles as Q4_0 has them; [B][2] u32 (bits 2w..2w+1 of byte k of word h are bits 4..5 of weight 16h +
// 4w + k); [B][2] sub-scales; [B/8] f16 scales.
template <>
struct PlaneLayout<WeightType::kQ6_K> {
  static constexpr uint32_t kBytes[] = {128, 64, 16, 2};

  static void place(const BlockQ6_K& block, size_t b, size_t n, uint8_t* out) {
    for (size_t s = 0; s < 8; ++s) {
      const size_t half = s / 4, k = s % 4;
      const uint8_t* low = block.low + 64 * half + 32 * (k % 2);
      const uint8_t* high = block.high + 32 * half;
      uint8_t* to = out + 16 * (b + s);
      const size_t shift = k / 2 * 4;
      for (size_t i = 0; i < 16; ++i)
        to[i] = static_cast<uint8_t>((low[i] >> shift & 15) | (low[i + 16] >> shift & 15) << 4);
      uint32_t words[2] = {};
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t bits = high[i] >> (2 * k) & 3u, word = i / 4 % 4, byte = i % 4;
        words[i / 16] |= bits << (8 * byte + 2 * word);
      }
      std::memcpy(out + 16 * n + 8 * (b + s), words, 8);
      std::memcpy(out + 24 * n + 2 * (b + s), block.sub_scales + 2 * s, 2);
    }
    std::memcpy(out + 26 * n + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
