// IQ3_XXS on the GPU, in the planes of lib/quant/iq3_xxs.h.
#pragma once

#include "cuda/quant/grid.cuh"
#include "quant/iq3_xxs.h"

namespace weir::cuda {

__device__ const uint16_t kGridIQ3_XXS[256] = {
#define G(even, odd) even, odd
#include "quant/iq3_xxs_grid.inc"
#undef G
};

template <>
struct Format<WeightType::kIQ3_XXS> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 4;
  struct Planes {
    const uint2* q;
    const uint32_t* sub;
    const uint16_t* scale;
  };
  struct Regs {
    uint2 q;
    uint32_t sub;
    uint16_t scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint2*>(data), reinterpret_cast<const uint32_t*>(data + 8 * n_blocks),
            reinterpret_cast<const uint16_t*>(data + 12 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.sub + b, p.scale + b / 8}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), load_stream(p.sub), __ldg(p.scale)}; }
  __device__ static uint4 entries(uint32_t q) {
    const auto entry = [&](uint32_t i) {  // halves of the magnitudes
      return grid3_bytes(0x0E0A0602u, 0x1F1A1612u, __ldg(kGridIQ3_XXS + (q >> (8 * i) & 255u)));
    };
    return {entry(0), entry(1), entry(2), entry(3)};
  }
  using Words = GridWords;
  __device__ static Words unpack(const Regs& r, uint32_t) {
    const uint32_t signs = even_signs(r.sub);
    const int sub = odd_scale(r.sub >> 28);
    return {{with_signs(entries(r.q.x), signs), with_signs(entries(r.q.y), signs >> 16)},
            {sub, sub},
            0.5f * half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return grid_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) { grid_decode(unpack(r, s), out); }
};

}  // namespace weir::cuda
