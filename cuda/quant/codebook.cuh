// Weights as 4-bit indices of a table of 16 signed bytes, on the GPU. The table (lib/quant/codebook.h) is in four
// registers, from which the byte permutation reads four of eight entries at a time, and a selector is a nibble.
#pragma once

#include "cuda/common/permute.cuh"
#include "cuda/quant/block_dot.cuh"
#include "quant/codebook.h"

namespace weir::cuda {

// The four entries that the low 16 bits of `index` select; `other` is `index` with bit 3 of each nibble inverted.
template <class Table>
__device__ uint32_t look_up_four(uint32_t index, uint32_t other) {
  constexpr uint32_t kA = Table::kFirst[0], kB = Table::kFirst[1], kC = Table::kSecond[0], kD = Table::kSecond[1];
  return permute(kA, kB, index) ^ permute(kC, kD, other);
}
template <class Table>
__device__ Bytes32 look_up(uint4 q) {
  const uint32_t words[4] = {q.x, q.y, q.z, q.w};
  uint32_t low[4], high[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t other = words[i] ^ 0x88888888u;
    low[i] = look_up_four<Table>(words[i], other);
    high[i] = look_up_four<Table>(words[i] >> 16, other >> 16);
  }
  return {{low[0], low[1], low[2], low[3]}, {high[0], high[1], high[2], high[3]}};
}

// A block ready to be multiplied.
struct ScaledWords {
  Bytes32 w;
  float scale;
};
__device__ inline float scaled_dot(const ScaledWords& w, const Act& a, float total) {
  return fmaf(w.scale * a.scale, static_cast<float>(dot32(w.w, a)), total);
}
__device__ inline void scaled_decode(const ScaledWords& w, float* out) {
  signed_to_float(w.w.low, w.scale, out);
  signed_to_float(w.w.high, w.scale, out + 16);
}

}  // namespace weir::cuda
