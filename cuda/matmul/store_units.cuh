// How a warp writes the weights that its lanes decoded, each a unit, as f16 one behind the other.
//
// The unit of a quantised type is 64 bytes. If lanes wrote their own, each store would touch 32 sectors and fill a part
// of each; so the pieces of 16 bytes change lanes in shared memory, and every store writes 512 bytes in a row. An H200
// decodes 32 MiB of f16 from Q4_K in some 16 us instead of 49.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

// Four weights as f16.
__device__ inline uint2 four_halves(const float* v) {
  const __half2 low = __floats2half2_rn(v[0], v[1]), high = __floats2half2_rn(v[2], v[3]);
  return make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
}

template <uint32_t kUnit, uint32_t kThreads>
struct UnitStore {
  static constexpr uint32_t kPieces = kUnit / 8;
  uint4 pieces[kThreads / kWarp][kWarp * kPieces];

  // Place of piece j of a lane's unit: the XOR puts what eight lanes write at once into different banks.
  __device__ static uint32_t place(uint32_t lane, uint32_t j) {
    return lane * kPieces + (j ^ (lane * kPieces / 8 & (kPieces - 1)));
  }

  // All lanes of a warp call it. The first n_units lanes have a unit, whose weights are v; `to` is for that of lane 0.
  __device__ void store(const float (&v)[kUnit], uint32_t n_units, __half* to) {
    const uint32_t lane = threadIdx.x % kWarp;
    uint4* const mine = pieces[threadIdx.x / kWarp];
#pragma unroll
    for (uint32_t j = 0; j < kPieces; ++j) {
      const uint2 low = four_halves(v + 8 * j), high = four_halves(v + 8 * j + 4);
      mine[place(lane, j)] = make_uint4(low.x, low.y, high.x, high.y);
    }
    __syncwarp();
#pragma unroll
    for (uint32_t j = 0; j < kPieces; ++j) {
      const uint32_t i = j * kWarp + lane;
      if (i / kPieces < n_units) reinterpret_cast<uint4*>(to)[i] = mine[place(i / kPieces, i % kPieces)];
    }
  }
};

// Types without blocks have small units, which the lanes write themselves.
template <uint32_t kUnit, uint32_t kThreads>
requires(kUnit <= 8) struct UnitStore<kUnit, kThreads> {
  __device__ void store(const float (&v)[kUnit], uint32_t n_units, __half* to) {
    const uint32_t lane = threadIdx.x % kWarp;
    if (lane >= n_units) return;
#pragma unroll
    for (uint32_t j = 0; j < kUnit / 4; ++j)
      reinterpret_cast<uint2*>(to)[lane * (kUnit / 4) + j] = four_halves(v + 4 * j);
  }
};

}  // namespace weir::cuda
