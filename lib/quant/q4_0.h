// Q4_0: 32 weights share one f16 scale; each is a 4-bit number 0..15, less 8, times the scale. 18 bytes, 4.5 bits a
// weight.
//   byte  0..1   scale, f16 (negative in about half of the blocks that encoders write)
//   byte  2..17  q[16]: the low four bits of q[i] are weight i, the high four bits weight i + 16
// The product has at most 11 + 3 significant bits, so it is exact in f32: every correct decoder gives the same bits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"
#include "quant/planes.h"

namespace weir {

struct [[gnu::packed]] BlockQ4_0 {
  static constexpr size_t kWeights = 32;
  uint16_t scale;
  uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18);
static_assert(offsetof(BlockQ4_0, scale) == 0 && offsetof(BlockQ4_0, q) == 2);

inline void decode(const BlockQ4_0& block, float* out) {
  const float scale = f16_to_f32(block.scale);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((block.q[i] & 15) - 8);
    out[i + 16] = scale * static_cast<float>((block.q[i] >> 4) - 8);
  }
}

// The weight of largest magnitude becomes exactly -8 (the range is -8..7), hence the sign of the scale. The others are
// rounded to nearest.
inline void encode(const float* in, BlockQ4_0& block) {
  float extreme = 0;
  for (size_t i = 0; i < 32; ++i) {
    if (std::fabs(in[i]) > std::fabs(extreme)) extreme = in[i];
  }
  const float scale = extreme / -8.0f;
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  const auto quant = [inverse](float x) {
    return static_cast<uint8_t>(std::fmin(std::fmax(std::floor(x * inverse + 8.5f), 0.0f), 15.0f));  // NaN becomes 0
  };
  block.scale = f32_to_f16(scale);
  for (size_t i = 0; i < 16; ++i) block.q[i] = static_cast<uint8_t>(quant(in[i]) | quant(in[i + 16]) << 4);
}

// Turns random bytes into a valid block: quants stay uniform (root mean square 4.637); the scale keeps its random sign,
// so that the mean is 0.
inline void make_random(BlockQ4_0& block, float scale) {
  block.scale = static_cast<uint16_t>(f32_to_f16(scale / 4.637f) | (block.scale & 0x8000u));
}

// Planes: [B][16] bytes whose low nibbles are weights 0..15 and whose high nibbles are weights 16..31; [B] f16 scales.
template <>
struct PlaneLayout<WeightType::kQ4_0> {
  static constexpr uint32_t kBytes[] = {128, 16};

  static void place(const BlockQ4_0& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 16 * b, block.q, 16);
    std::memcpy(out + 16 * n + 2 * b, &block.scale, 2);
  }
};

}  // namespace weir
