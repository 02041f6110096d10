// MXFP4: 32 weights share a power of two; each is a 4-bit floating-point number: a sign and one of 0, 0.5, 1, 1.5, 2,
// 3, 4 and 6. 17 bytes, 4.25 bits a weight.
//   byte  0      scale: a weight is multiplied by 2 to the power scale - 127; 255 is not a number
//   byte  1..16  q[16]: the low four bits of q[i] are weight i, the high four bits weight i + 16; bit 3 is the sign
// The numbers are kept doubled, as integers, and the scale halved. The product with a power of two is exact in f32
// unless it overflows, so every correct decoder gives the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "quant/codebook.h"
#include "quant/planes.h"

namespace weir {

inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct [[gnu::packed]] BlockMXFP4 {
  static constexpr size_t kWeights = 32;
  uint8_t scale;
  uint8_t q[16];
};
static_assert(sizeof(BlockMXFP4) == 17);
static_assert(offsetof(BlockMXFP4, scale) == 0 && offsetof(BlockMXFP4, q) == 1);

// 2 to the power scale - 128; below 2 that is a subnormal number. 255 gives a NaN.
constexpr float mxfp4_scale(uint8_t scale) {
  if (scale == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(scale < 2 ? 0x00200000u << scale : (scale - 1u) << 23);
}

inline void decode(const BlockMXFP4& block, float* out) {
  const float scale = mxfp4_scale(block.scale);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(kMxfp4Values[block.q[i] & 15]);
    out[i + 16] = scale * static_cast<float>(kMxfp4Values[block.q[i] >> 4]);
  }
}

// Turns random bytes into a valid block: quants stay uniform (root mean square 5.852 when doubled). Of the two powers
// of two around the wanted scale, chance takes the larger one as often as makes the mean square right.
inline void make_random(BlockMXFP4& block, float scale) {
  const float wanted = scale / 5.852f;
  const uint32_t below = std::bit_cast<uint32_t>(wanted) >> 23 & 255u;  // the exponent, plus 127
  const float ratio = wanted / std::bit_cast<float>(below << 23);       // 1..2
  const bool larger = static_cast<float>(block.scale) < 256.0f * (ratio * ratio - 1.0f) / 3.0f;
  block.scale = static_cast<uint8_t>(below + 1 + (larger ? 1 : 0));
}

// Planes: [B][16] indices in the order of Codebook::place; [B] scale bytes.
template <>
struct PlaneLayout<WeightType::kMXFP4> {
  static constexpr uint32_t kBytes[] = {128, 8};

  static void place(const BlockMXFP4& block, size_t b, size_t n, uint8_t* out) {
    Codebook<kMxfp4Values>::place(block.q, out + 16 * b);
    out[16 * n + b] = block.scale;
  }
};

}  // namespace weir
