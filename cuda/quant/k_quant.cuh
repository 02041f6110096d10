// What the types with minima have in common on the GPU: the sub-scales in the headers of Q4_K and Q5_K, the pair of
// scale and minimum of Q4_1 and Q5_1, and the dot product and the decoder of 32 weights.
#pragma once

#include "cuda/quant/block_dot.cuh"

namespace weir::cuda {

// 32 weights are step * quant - low.
struct KStep {
  float step, low;
};
// Scale and minimum of sub-block s (0..7), from a K-quant header.
__device__ inline KStep k_step(uint4 header, uint32_t s) {
  const uint32_t shift = s % 4 * 8;
  uint32_t scale = header.y >> shift & 255u, minimum = header.z >> shift & 255u;
  if (s < 4) {
    scale &= 63u;
    minimum &= 63u;
  } else {
    const uint32_t low = header.w >> shift & 255u;
    scale = (low & 15u) | (scale >> 6) << 4;
    minimum = low >> 4 | (minimum >> 6) << 4;
  }
  return {half_bits(header.x & 0xFFFFu) * static_cast<float>(scale),
          half_bits(header.x >> 16) * static_cast<float>(minimum)};
}

// Scale and minimum from a pair of f16, whose second number is added.
__device__ inline KStep minimum_step(uint32_t pair) { return {half_bits(pair & 0xFFFFu), -half_bits(pair >> 16)}; }

// A block ready to be multiplied.
struct KWords {
  Bytes32 w;
  KStep k;
};
__device__ inline float k_dot(const KWords& w, const Act& a, float total) {
  const float low = w.k.low * static_cast<float>(a.both);
  return fmaf(a.scale, fmaf(w.k.step, static_cast<float>(dot32(w.w, a)), -low), total);
}
__device__ inline void k_decode(const Bytes32& w, const KStep& k, float* out) {
  bytes_above(w.low, k.step, k.low, out);
  bytes_above(w.high, k.step, k.low, out + 16);
}

}  // namespace weir::cuda
