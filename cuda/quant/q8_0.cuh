// Q8_0 on the GPU, in the planes of lib/quant/q8_0.h.
#pragma once

#include "cuda/quant/block_dot.cuh"
#include "quant/q8_0.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ8_0> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 9;
  struct Planes {
    const uint4 *low, *high;
    const uint16_t* scale;
  };
  struct Regs {
    uint4 low, high;
    uint16_t scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint4*>(data) + n_blocks,
            reinterpret_cast<const uint16_t*>(data + 32 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.low + b, p.high + b, p.scale + b}; }
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.low), load_stream(p.high), load_stream(p.scale)};
  }
  struct Words {
    Bytes32 w;
    float scale;
  };
  __device__ static Words unpack(const Regs& r, uint32_t) { return {{r.low, r.high}, half_bits(r.scale)}; }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    return fmaf(w.scale * a.scale, static_cast<float>(dot32(w.w, a)), total);
  }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    const uint32_t words[8] = {r.low.x, r.low.y, r.low.z, r.low.w, r.high.x, r.high.y, r.high.z, r.high.w};
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i)
      out[i] = half_bits(r.scale) * static_cast<float>(static_cast<int8_t>(words[i / 4] >> (i % 4 * 8)));
  }
};

}  // namespace weir::cuda
