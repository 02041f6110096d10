// IQ4_XS: 256 weights in eight sub-blocks of 32; a weight is (scale * (sub-scale - 32)) times the integer that its
// 4-bit number selects (iq4_values.h). 136 bytes, 4.25 bits a weight.
//   byte  0..1    scale, f16
//   byte  2..3    sub_high, u16: bits 2s..2s+1 are bits 4..5 of sub-scale s
//   byte  4..7    sub_low[4]: bits 0..3 of sub-scales 2i (low four bits) and 2i+1 (high four bits)
//   byte  8..135  q[128]: sub-block s has q[16s ..]; the low four bits are its weights 0..15, the high ones 16..31
// The product has at most 11 + 5 + 7 significant bits, so it is exact in f32: every correct decoder gives the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/codebook.h"
#include "quant/half.h"
#include "quant/iq4_values.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockIQ4_XS {
  static constexpr size_t kWeights = 256;
  uint16_t scale;
  uint16_t sub_high;
  uint8_t sub_low[4];
  uint8_t q[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);
static_assert(offsetof(BlockIQ4_XS, scale) == 0 && offsetof(BlockIQ4_XS, sub_high) == 2);
static_assert(offsetof(BlockIQ4_XS, sub_low) == 4 && offsetof(BlockIQ4_XS, q) == 8);

inline void decode(const BlockIQ4_XS& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t s = 0; s < 8; ++s) {
    const int sub = (block.sub_low[s / 2] >> (s % 2 * 4) & 15) | (block.sub_high >> (2 * s) & 3) << 4;
    const float step = scale * static_cast<float>(sub - 32);
    for (size_t i = 0; i < 16; ++i) {
      out[32 * s + i] = step * static_cast<float>(kIq4Values[block.q[16 * s + i] & 15]);
      out[32 * s + 16 + i] = step * static_cast<float>(kIq4Values[block.q[16 * s + i] >> 4]);
    }
  }
}

// Turns random bytes into a valid block: quants and signed sub-scales stay uniform; the standard deviation is then
// 1246.3 scales.
inline void make_random(BlockIQ4_XS& block, float scale) { block.scale = f32_to_f16(scale / 1246.3f); }

// Planes: [B][16] indices in the order of Codebook::place; [B/8][8] headers as in the file: f16 scale, u16 and four
// bytes of sub-scales.
template <>
struct PlaneLayout<WeightType::kIQ4_XS> {
  static constexpr uint32_t kBytes[] = {128, 8};

  static void place(const BlockIQ4_XS& block, size_t b, size_t n, uint8_t* out) {
    for (size_t s = 0; s < 8; ++s) Codebook<kIq4Values>::place(block.q + 16 * s, out + 16 * (b + s));
    std::memcpy(out + 16 * n + b, &block, 8);  // the header comes first in the block
  }
};

}  // namespace weir
