// Q4_1 on the GPU, in the planes of lib/quant/q4_1.h.
#pragma once

#include "cuda/quant/k_quant.cuh"
#include "quant/q4_1.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ4_1> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 5;
  struct Planes {
    const uint4* q;
    const uint32_t* header;
  };
  struct Regs {
    uint4 q;
    uint32_t header;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint32_t*>(data + 16 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.header + b}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), load_stream(p.header)}; }
  using Words = KWords;
  __device__ static Words unpack(const Regs& r, uint32_t) { return {unpack_nibbles(r.q), minimum_step(r.header)}; }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return k_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    k_decode(unpack_nibbles(r.q), minimum_step(r.header), out);
  }
};

}  // namespace weir::cuda
