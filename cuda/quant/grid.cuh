// What the types with grids have in common on the GPU (lib/quant/grid.h): magnitudes of four weights from an entry of a
// grid, and their signs. Lanes read entries of their own, so the grids lie in global memory and come through L1.
#pragma once

#include "cuda/common/permute.cuh"
#include "cuda/quant/block_dot.cuh"
#include "quant/grid.h"

namespace weir::cuda {

// The bytes of an entry of three-bit numbers; `low` and `high` are the eight magnitudes.
__device__ inline uint32_t grid3_bytes(uint32_t low, uint32_t high, uint32_t entry) {
  return permute(low, high, entry);
}
// The bytes of an entry of two-bit numbers, eight weights.
__device__ inline uint2 grid2_bytes(uint32_t entry) {
  uint32_t nibbles = (entry | entry << 8) & 0x00FF00FFu;
  nibbles = (nibbles | nibbles << 4) & 0x0F0F0F0Fu;
  nibbles = (nibbles | nibbles << 2) & 0x33333333u;
  constexpr uint32_t kValues = kGrid2Values[0] | kGrid2Values[1] << 8 | kGrid2Values[2] << 16;
  return {permute(kValues, 0, nibbles), permute(kValues, 0, nibbles >> 16)};
}

// Four bytes, none of which is 0, with the signs of the low four bits. The product puts bit i into bit 8i + 7, which
// the permutation spreads over its byte.
__device__ inline uint32_t with_signs(uint32_t bytes, uint32_t signs) {
  const uint32_t minus = permute((signs & 15u) * 0x10204080u, 0, 0xBA98u);
  return (bytes ^ minus) + (minus & 0x01010101u);
}
__device__ inline uint4 with_signs(uint4 bytes, uint32_t signs) {
  return {with_signs(bytes.x, signs), with_signs(bytes.y, signs >> 4), with_signs(bytes.z, signs >> 8),
          with_signs(bytes.w, signs >> 12)};
}

// A block whose sub-scales hold for 32 weights: 1 + 2n, or for 16, ready to be multiplied. Magnitudes are below 64 and
// sub-scales below 32, so the integers are below 2^31.
struct GridWords {
  Bytes32 w;
  int sub[2];
  float scale;
};
__device__ inline int odd_scale(uint32_t n) { return static_cast<int>(1 + 2 * n); }
__device__ inline float grid_dot(const GridWords& w, const Act& a, float total) {
  const int sum = w.sub[0] * dot16(w.w.low, a.hi[0], a.lo[0]) + w.sub[1] * dot16(w.w.high, a.hi[1], a.lo[1]);
  return fmaf(w.scale * a.scale, static_cast<float>(sum), total);
}
__device__ inline void grid_decode(const GridWords& w, float* out) {
  signed_to_float(w.w.low, w.scale * static_cast<float>(w.sub[0]), out);
  signed_to_float(w.w.high, w.scale * static_cast<float>(w.sub[1]), out + 16);
}

}  // namespace weir::cuda
