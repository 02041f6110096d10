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
  static constexpr uint32_t kEntries = 512;
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
  __device__ static uint32_t entry(uint32_t number) { return spread_pairs_over_nibbles(__ldg(kGridIQ2_XS + number)); }
  using Words = GridWords;
  template <class Table>
  __device__ static Words unpack(const Regs& r, uint32_t, const Table& table) {
    const auto number = [&](uint32_t i) { return byte_of(r.q.x, i) | (r.q.y >> (20 + i) & 256u); };
    return {grid2_block(table, with_eighth_signs(r.q.y), number),
            {odd_scale(r.sub & 15u), odd_scale(r.sub >> 4)},
            0.125f * half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return grid_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    grid_decode(unpack(r, s, EntriesInMemory<Format>()), out);
  }
};

}  // namespace weir::cuda
