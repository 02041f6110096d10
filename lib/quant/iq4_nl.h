// IQ4_NL: 32 weights share one f16 scale; each is a 4-bit number that selects one of 16 integers (iq4_values.h), times
// the scale. 18 bytes, 4.5 bits a weight.
//   byte  0..1   scale, f16
//   byte  2..17  q[16]: the low four bits of q[i] are weight i, the high four bits weight i + 16
// The product has at most 11 + 7 significant bits, so it is exact in f32: every correct decoder gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/codebook.h"
#include "quant/half.h"
#include "quant/iq4_values.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockIQ4_NL {
  static constexpr size_t kWeights = 32;
  uint16_t scale;
  uint8_t q[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(offsetof(BlockIQ4_NL, scale) == 0 && offsetof(BlockIQ4_NL, q) == 2);

inline void decode(const BlockIQ4_NL& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(kIq4Values[block.q[i] & 15]);
    out[i + 16] = scale * static_cast<float>(kIq4Values[block.q[i] >> 4]);
  }
}

// Turns random bytes into a valid block: quants stay uniform (root mean square 67.439); the scale keeps its random
// sign, so that the mean is 0.
inline void make_random(BlockIQ4_NL& block, float scale) {
  block.scale = static_cast<uint16_t>(f32_to_f16(scale / 67.439f) | (block.scale & 0x8000u));
}

// Planes: [B][16] indices in the order of Codebook::place; [B] f16 scales.
template <>
struct PlaneLayout<WeightType::kIQ4_NL> {
  static constexpr uint32_t kBytes[] = {128, 16};

  static void place(const BlockIQ4_NL& block, size_t b, size_t n, uint8_t* out) {
    Codebook<kIq4Values>::place(block.q, out + 16 * b);
    std::memcpy(out + 16 * n + 2 * b, &block.scale, 2);
  }
};

}  // namespace weir
