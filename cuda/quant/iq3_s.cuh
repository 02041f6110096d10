// IQ3_S on the GPU, in the planes of lib/quant/iq3_s.h.
#pragma once

#include "cuda/quant/grid.cuh"
#include "quant/iq3_s.h"

namespace weir::cuda {

__device__ const uint16_t kGridIQ3_S[512] = {
#define G(even, odd) even, odd
#include "quant/iq3_s_grid.inc"
#undef G
};

template <>
struct Format<WeightType::kIQ3_S> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 6;
  struct Planes {
    const uint2* q;
    const uint32_t* signs;
    const uint8_t* high;
    const uint32_t* sub;
    const uint16_t* scale;
  };
  struct Regs {
    uint2 q;
    uint32_t signs, sub;
    uint16_t scale;
    uint8_t high;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint2*>(data), reinterpret_cast<const uint32_t*>(data + 8 * n_blocks),
            data + 12 * n_blocks, reinterpret_cast<const uint32_t*>(data + 13 * n_blocks),
            reinterpret_cast<const uint16_t*>(data + 13 * n_blocks + n_blocks / 2)};
  }
  __device__ static Planes at(const Planes& p, size_t b) {
    return {p.q + b, p.signs + b, p.high + b, p.sub + b / 8, p.scale + b / 8};
  }
  // Eight lanes share the last two, so they are read through L1.
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.q), load_stream(p.signs), __ldg(p.sub), __ldg(p.scale), load_stream(p.high)};
  }
  // Four entries of a half of the block, whose numbers are in a word and in four bits.
  __device__ static uint4 entries(uint32_t q, uint32_t high) {
    const auto entry = [&](uint32_t i) {
      const uint32_t number = (q >> (8 * i) & 255u) | (high << (8 - i) & 256u);
      return grid3_bytes(0x07050301u, 0x0F0D0B09u, __ldg(kGridIQ3_S + number));
    };
    return {entry(0), entry(1), entry(2), entry(3)};
  }
  using Words = GridWords;
  __device__ static Words unpack(const Regs& r, uint32_t s) {
    const int sub = odd_scale(r.sub >> (4 * s) & 15u);
    return {{with_signs(entries(r.q.x, r.high), r.signs), with_signs(entries(r.q.y, r.high >> 4), r.signs >> 16)},
            {sub, sub},
            half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return grid_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) { grid_decode(unpack(r, s), out); }
};

}  // namespace weir::cuda
