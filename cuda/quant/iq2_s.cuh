// IQ2_S on the GPU, in the planes of lib/quant/iq2_s.h.
#pragma once

#include "cuda/quant/grid.cuh"
#include "quant/iq2_s.h"

namespace weir::cuda {

__device__ const uint16_t kGridIQ2_S[1024] = {
#define G(even, odd) even, odd
#include "quant/iq2_s_grid.inc"
#undef G
};

template <>
struct Format<WeightType::kIQ2_S> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 5;
  static constexpr uint32_t kEntries = 1024;
  struct Planes {
    const uint32_t *q, *signs;
    const uint8_t *high, *sub;
    const uint16_t* scale;
  };
  struct Regs {
    uint32_t q, signs;
    uint16_t scale;
    uint8_t high, sub;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint32_t*>(data), reinterpret_cast<const uint32_t*>(data + 4 * n_blocks),
            data + 8 * n_blocks, data + 9 * n_blocks, reinterpret_cast<const uint16_t*>(data + 10 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) {
    return {p.q + b, p.signs + b, p.high + b, p.sub + b, p.scale + b / 8};
  }
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.q), load_stream(p.signs), __ldg(p.scale), load_stream(p.high), load_stream(p.sub)};
  }
  __device__ static uint32_t entry(uint32_t number) { return spread_pairs_over_nibbles(__ldg(kGridIQ2_S + number)); }
  using Words = GridWords;
  template <class Table>
  __device__ static Words unpack(const Regs& r, uint32_t, const Table& table) {
    const uint32_t high = r.high;
    const auto number = [&](uint32_t i) { return byte_of(r.q, i) | (high << (8 - 2 * i) & 0x300u); };
    return {grid2_block(table, r.signs, number),
            {odd_scale(r.sub & 15u), odd_scale(r.sub >> 4)},
            0.125f * half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return grid_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    grid_decode(unpack(r, s, EntriesInMemory<Format>()), out);
  }
};

}  // namespace weir::cuda
