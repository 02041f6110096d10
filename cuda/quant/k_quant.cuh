// What Q4_K and Q5_K have in common on the GPU: the header's sub-scales, and the dot product of a block.
#pragma once

#include "cuda/quant/block_dot.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

// Scale and minimum of sub-block s (0..7) of a K-quant header.
struct KStep {
  float step, low;
};
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

// A block ready to be multiplied.
struct KWords {
  Bytes32 w;
  KStep k;
};
__device__ inline float k_dot(const KWords& w, const Act& a, float total) {
  const float low = w.k.low * static_cast<float>(a.both);
  return fmaf(a.scale, fmaf(w.k.step, static_cast<float>(dot32(w.w, a)), -low), total);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
