// NVFP4: 64 weights in four sub-blocks of 16, each with a scale of eight bits; a weight is a 4-bit floating-point
// number as in MXFP4. 36 bytes, 4.5 bits a weight.
//   byte  0..3   scales[4]: bits 3..6 are an exponent, 7 less than which the power of two has; bits 0..2 a fraction;
//                exponent 0 is a subnormal number. Bit 7 is ignored, and 127 counts as 0.
//   byte  4..35  q[32]: sub-block s has q[8s ..]; the low four bits of q[8s + i] are its weight i, the high four bits
//                its weight i + 8; bit 3 is the sign
// The numbers are kept doubled, as integers, and the scales halved. The product has at most 4 + 4 significant bits, so
// it is exact in f32: every correct decoder gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/codebook.h"
#include "quant/mxfp4.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockNVFP4 {
  static constexpr size_t kWeights = 64;
  uint8_t scales[4];
  uint8_t q[32];
};
static_assert(sizeof(BlockNVFP4) == 36);
static_assert(offsetof(BlockNVFP4, scales) == 0 && offsetof(BlockNVFP4, q) == 4);

// Half of what the eight bits stand for: (8 + fraction) * 2^(exponent - 11), subnormal fraction * 2^-10.
constexpr float nvfp4_scale(uint8_t scale) {
  if (scale == 127) return 0.0f;
  const uint32_t exponent = scale >> 3 & 15u, fraction = scale & 7u;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 119) << 23 | fraction << 20);
}

inline void decode(const BlockNVFP4& block, float* out) {
  for (size_t s = 0; s < 4; ++s) {
    const float scale = nvfp4_scale(block.scales[s]);
    for (size_t i = 0; i < 8; ++i) {
      out[16 * s + i] = scale * static_cast<float>(kMxfp4Values[block.q[8 * s + i] & 15]);
      out[16 * s + 8 + i] = scale * static_cast<float>(kMxfp4Values[block.q[8 * s + i] >> 4]);
    }
  }
}

// Turns random bytes into a valid block: quants stay uniform (root mean square 5.852 when doubled). Of the two scales
// around the wanted one, chance takes the larger one as often as makes the mean square right.
inline void make_random(BlockNVFP4& block, float scale) {
  const float wanted = scale / 5.852f;
  uint8_t below = 0;
  while (below < 125 && nvfp4_scale(static_cast<uint8_t>(below + 1)) <= wanted) ++below;
  const float low = nvfp4_scale(below), high = nvfp4_scale(static_cast<uint8_t>(below + 1));
  const float chance = 256.0f * (wanted * wanted - low * low) / (high * high - low * low);
  for (uint8_t& s : block.scales) s = static_cast<uint8_t>(below + (static_cast<float>(s) < chance ? 1 : 0));
}

// Planes: [B][16] indices in the order of Codebook::place; [B][2] bytes of scales, for weights 0..15 and 16..31.
template <>
struct PlaneLayout<WeightType::kNVFP4> {
  static constexpr uint32_t kBytes[] = {128, 16};

  static void place(const BlockNVFP4& block, size_t b, size_t n, uint8_t* out) {
    for (size_t half = 0; half < 2; ++half) {
      const uint8_t* q = block.q + 16 * half;
      uint8_t split[16];  // weight i in the low, weight 16 + i in the high four bits
      for (size_t i = 0; i < 8; ++i) {
        split[i] = static_cast<uint8_t>((q[i] & 15) | (q[8 + i] & 15) << 4);
        split[8 + i] = static_cast<uint8_t>(q[i] >> 4 | (q[8 + i] >> 4) << 4);
      }
      Codebook<kMxfp4Values>::place(split, out + 16 * (b + half));
    }
    std::memcpy(out + 16 * n + 2 * b, block.scales, 4);
  }
};

}  // namespace weir
