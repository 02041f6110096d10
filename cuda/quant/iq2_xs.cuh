// IQ2_XS on the GPU, in the planes of lib/quant/iq2_xs.h.
#pragma once

#include "cuda/quant/grid.cuh"
#include "quant/iq2_xs.h"

namespace weir::cuda {

__device__ const uint16_t kGridIQ2_XS[512] = {
#define G(even, odd) even, odd
#include "quant/iq2_xs_grid.inc"
#undef G
};

template <>
struct Format<WeightType::kIQ2_XS> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 4;
  struct Planes {
    const uint2* q;
    const uint8_t* sub;
    const uint16_t* scale;
  };
  struct Regs {
    uint2 q;
    uint16_t scale;
    uint8_t sub;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint2*>(data), data + 8 * n_blocks,
            reinterpret_cast<const uint16_t*>(data + 9 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.sub + b, p.scale + b / 8}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), __ldg(p.scale), load_stream(p.sub)}; }
  // The entries of 16 weights, from a pair of numbers.
  __device__ static uint4 entries(uint32_t pair) {
    const uint2 a = grid2_bytes(__ldg(kGridIQ2_XS + (pair & 511u)));
    const uint2 b = grid2_bytes(__ldg(kGridIQ2_XS + (pair >> 16 & 511u)));
    return with_signs(uint4{a.x, a.y, b.x, b.y}, even_signs((pair >> 9 & 127u) | (pair >> 18 & 0x3F80u)));
  }
  using Words = GridWords;
  __device__ static Words unpack(const Regs& r, uint32_t) {
    return {
        {entries(r.q.x), entries(r.q.y)}, {odd_scale(r.sub & 15u), odd_scale(r.sub >> 4)}, 0.125f * half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return grid_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) { grid_decode(unpack(r, s), out); }
};

}  // namespace weir::cuda
