// IQ4_XS on the GPU, in the planes of lib/quant/iq4_xs.h.
#pragma once

#include "cuda/quant/codebook.cuh"
#include "quant/iq4_xs.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kIQ4_XS> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 6;
  struct Planes {
    const uint4* q;
    const uint2* header;
  };
  struct Regs {
    uint4 q;
    uint2 header;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint2*>(data + 16 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.header + b / 8}; }
  // Eight lanes share a header, so it is read through L1.
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), __ldg(p.header)}; }
  __device__ static float step(uint2 header, uint32_t s) {
    const uint32_t sub = (header.y >> (4 * s) & 15u) | (header.x >> (16 + 2 * s) & 3u) << 4;
    return half_bits(header.x & 0xFFFFu) * static_cast<float>(static_cast<int>(sub) - 32);
  }
  using Words = ScaledWords;
  __device__ static Words unpack(const Regs& r, uint32_t s) {
    return {look_up<Codebook<kIq4Values>>(r.q), step(r.header, s)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    return scaled_dot(w, Act(at), total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) { scaled_decode(unpack(r, s), out); }
};

}  // namespace weir::cuda
