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
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

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

// Planes: [B][2] and [B][1] words, see below; [B] bytes, whose nibbles are bits 0..3 of the sub-scales of weights 0..15
// and 16..31; [B/8] u32, whose nibble s has bits 4..5 of the same two of sub-block s; [B/8] f16 scales.
//
// The three words of a block have eight quants each in the low three bits of their nibbles, in the order of
// quant/codebook.h: word i weights 4i .. 4i+3 and 16+4i .. 16+4i+3. The eight quants that are left, i = 3, have their
// bit k in the highest bits of the nibbles of word k.
template <>
struct PlaneLayout<WeightType::kQ3_K> {
  static constexpr uint32_t kBytes[] = {64, 32, 8, 4, 2};

  static void place(const BlockQ3_K& block, size_t b, size_t n, uint8_t* out) {
    uint32_t tops = 0;
    for (size_t s = 0; s < 8; ++s) {
      uint32_t words[3] = {};
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t q = (block.low[s / 4 * 32 + i] >> (s % 4 * 2) & 3u) | (block.high[i] >> s & 1u) << 2;
        const uint32_t word = i % 16 / 4, shift = 4 * (i % 4 + i / 16 * 4);
        if (word < 3) words[word] |= q << shift;
        for (uint32_t k = 0; word == 3 && k < 3; ++k) words[k] |= (q >> k & 1) << (shift + 3);
      }
      std::memcpy(out + 8 * (b + s), words, 8);
      std::memcpy(out + 8 * n + 4 * (b + s), words + 2, 4);
      const auto first = static_cast<uint32_t>(q3_k_sub_scale(block.sub_scales, 2 * s));
      const auto second = static_cast<uint32_t>(q3_k_sub_scale(block.sub_scales, 2 * s + 1));
      out[12 * n + b + s] = static_cast<uint8_t>((first & 15) | (second & 15) << 4);
      tops |= (first >> 4 | second >> 4 << 2) << (4 * s);
    }
    std::memcpy(out + 13 * n + b / 2, &tops, 4);
    std::memcpy(out + 13 * n + n / 2 + b / 4, &block.scale, 2);
  }
};

}  // namespace weir
