// IQ4_NL on the GPU, in the planes of lib/quant/iq4_nl.h.
#pragma once

#include "cuda/quant/codebook.cuh"
#include "quant/iq4_nl.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kIQ4_NL> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 5;
  struct Planes {
    const uint4* q;
    const uint16_t* scale;
  };
  struct Regs {
    uint4 q;
    uint16_t scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint16_t*>(data + 16 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.scale + b}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), load_stream(p.scale)}; }
  using Words = ScaledWords;
  __device__ static Words unpack(const Regs& r, uint32_t) {
    return {look_up<Codebook<kIq4Values>>(r.q), half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    return scaled_dot(w, Act(at), total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) { scaled_decode(unpack(r, s), out); }
};

}  // namespace weir::cuda
