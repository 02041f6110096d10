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
  static constexpr uint32_t kEntries = 256;
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
  __device__ static uint32_t entry(uint32_t number) {  // halves of the magnitudes
    return permute(0x0E0A0602u, 0x1F1A1612u, __ldg(kGridIQ3_XXS + number));
  }
  using Words = GridWords;
  template <class Table>
  __device__ static Words unpack(const Regs& r, uint32_t, const Table& table) {
    const int sub = odd_scale(r.sub >> 28);
    const auto number = [&](uint32_t i) { return byte_of(i < 4 ? r.q.x : r.q.y, i % 4); };
    // No byte is 0, so that negating one does not carry.
    const auto weight = [](uint32_t bytes, uint32_t minus) { return (bytes ^ minus) + (minus & 0x01010101u); };
    return {grid3_block(table, with_eighth_signs(r.sub), number, weight), {sub, sub}, 0.5f * half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return grid_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    grid_decode(unpack(r, s, EntriesInMemory<Format>()), out);
  }
};

}  // namespace weir::cuda
