// MXFP4 on the GPU, in the planes of lib/quant/mxfp4.h.
#pragma once

#include "cuda/quant/codebook.cuh"
#include "quant/mxfp4.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kMXFP4> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 5;
  struct Planes {
    const uint4* q;
    const uint8_t* scale;
  };
  struct Regs {
    uint4 q;
    uint8_t scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), data + 16 * n_blocks};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.scale + b}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), load_stream(p.scale)}; }
  // mxfp4_scale of quant/mxfp4.h.
  __device__ static float scale(uint32_t e) {
    const uint32_t finite = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    return __uint_as_float(e == 255 ? 0x7FC00000u : finite);
  }
  using Words = ScaledWords;
  __device__ static Words unpack(const Regs& r, uint32_t) {
    return {look_up<Codebook<kMxfp4Values>>(r.q), scale(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    return scaled_dot(w, Act(at), total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) { scaled_decode(unpack(r, s), out); }
};

}  // namespace weir::cuda
