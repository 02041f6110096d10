// Q8_0: 32 weights share one f16 scale; each is a signed byte times the scale. 34 bytes, 8.5 bits a weight.
//   byte  0..1   scale, f16
//   byte  2..33  q[32], weight i = scale * q[i]
// The product has at most 11 + 7 significant bits, so it is exact in f32: every correct decoder gives the same bits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ8_0 {
  static constexpr size_t kWeights = 32;
  uint16_t scale;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(offsetof(BlockQ8_0, scale) == 0 && offsetof(BlockQ8_0, q) == 2);

inline void decode(const BlockQ8_0& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(block.q[i]);
}

// Scale = largest magnitude / 127; quants are rounded by the f32 scale, halves away from zero, as is usual for this
// type.
inline void encode(const float* in, BlockQ8_0& block) {
  float largest = 0;
  for (size_t i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(in[i]));
  const float scale = largest / 127.0f;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  block.scale = f32_to_f16(scale);
  for (size_t i = 0; i < 32; ++i) {
    const float q = std::round(in[i] * inverse);  // NaN (from inf * 0 or a NaN weight) becomes -127 below
    block.q[i] = static_cast<int8_t>(std::fmin(std::fmax(q, -127.0f), 127.0f));
  }
}

// Turns random bytes into a valid block: quants stay uniform over all bytes (root mean square 73.9); the scale keeps
// its random sign, so that the mean is 0.
inline void make_random(BlockQ8_0& block, float scale) {
  block.scale = static_cast<uint16_t>(f32_to_f16(scale / 73.9f) | (block.scale & 0x8000u));
}

// Planes: [B][16] weights 0..15 of each block; [B][16] weights 16..31; [B] f16 scales.
template <>
struct PlaneLayout<WeightType::kQ8_0> {
  static constexpr uint32_t kBytes[] = {128, 128, 16};

  static void place(const BlockQ8_0& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 16 * b, block.q, 16);
    std::memcpy(out + 16 * (n + b), block.q + 16, 16);
    std::memcpy(out + 32 * n + 2 * b, &block.scale, 2);
  }
};

}  // namespace weir
