// Q5_K on the GPU, in the planes of lib/quant/q5_k.h.
#pragma once

#include "cuda/quant/k_quant.cuh"
#include "quant/q5_k.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ5_K> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 9;
  struct Planes {
    const uint4* q;
    const uint32_t* high;
    const uint4* header;
  };
  struct Regs {
    uint4 q, header;
    uint32_t high;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint32_t*>(data + 16 * n_blocks),
            reinterpret_cast<const uint4*>(data + 20 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.high + b, p.header + b / 8}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), __ldg(p.header), load_stream(p.high)}; }
  using Words = KWords;
  __device__ static Words unpack(const Regs& r, uint32_t s) {
    return {unpack_nibbles(r.q, r.high), k_step(r.header, s)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return k_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    k_decode(unpack_nibbles(r.q, r.high), k_step(r.header, s), out);
  }
};

}  // namespace weir::cuda
