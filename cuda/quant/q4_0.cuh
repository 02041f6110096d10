// Q4_0 on the GPU, in the planes of lib/quant/q4_0.h.
#pragma once

#include "cuda/quant/block_dot.cuh"
#include "quant/q4_0.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ4_0> {
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
  struct Words {
    Bytes32 w;
    float scale;
  };
  __device__ static Words unpack(const Regs& r, uint32_t) { return {unpack_nibbles(r.q), half_bits(r.scale)}; }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    return fmaf(w.scale * a.scale, static_cast<float>(dot32(w.w, a) - 8 * a.both), total);
  }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    bytes_to_float(low_nibbles(r.q), 8.0f, half_bits(r.scale), out);
    bytes_to_float(high_nibbles(r.q), 8.0f, half_bits(r.scale), out + 16);
  }
};

}  // namespace weir::cuda
