// NVFP4 on the GPU, in the planes of lib/quant/nvfp4.h.
#pragma once

#include "cuda/quant/codebook.cuh"
#include "quant/nvfp4.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kNVFP4> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 5;
  struct Planes {
    const uint4* q;
    const uint16_t* scales;
  };
  struct Regs {
    uint4 q;
    uint16_t scales;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint16_t*>(data + 16 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.scales + b}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), load_stream(p.scales)}; }
  // nvfp4_scale of quant/nvfp4.h: the bits are those of an f16 with an exponent that is 8 larger.
  __device__ static float scale(uint32_t s) { return s == 127 ? 0.0f : half_bits((s & 127u) << 7) * 128.0f; }
  struct Words {
    Bytes32 w;
    float scale[2];
  };
  __device__ static Words unpack(const Regs& r, uint32_t) {
    const uint32_t scales = r.scales;
    return {look_up<Codebook<kMxfp4Values>>(r.q), {scale(scales & 255u), scale(scales >> 8)}};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    const float low = w.scale[0] * static_cast<float>(dot16(w.w.low, a.hi[0], a.lo[0]));
    const float high = w.scale[1] * static_cast<float>(dot16(w.w.high, a.hi[1], a.lo[1]));
    return fmaf(a.scale, low + high, total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    const Words w = unpack(r, s);
    signed_to_float(w.w.low, w.scale[0], out);
    signed_to_float(w.w.high, w.scale[1], out + 16);
  }
};

}  // namespace weir::cuda
