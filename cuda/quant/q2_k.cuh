// Q2_K on the GPU, in the planes of lib/quant/q2_k.h.
#pragma once

#include "cuda/quant/block_dot.cuh"
#include "quant/q2_k.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ2_K> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 4;
  struct Planes {
    const uint2* q;
    const uint16_t* sub;
    const uint32_t* scale;
  };
  struct Regs {
    uint2 q;
    uint32_t scale;
    uint16_t sub;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint2*>(data), reinterpret_cast<const uint16_t*>(data + 8 * n_blocks),
            reinterpret_cast<const uint32_t*>(data + 10 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.sub + b, p.scale + b / 8}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), __ldg(p.scale), load_stream(p.sub)}; }
  struct Words {
    Bytes32 w;
    int sub[2], low[2];
    float scale, min_scale;
  };
  __device__ static uint4 quants(uint32_t word) {
    return {word & 0x03030303u, word >> 2 & 0x03030303u, word >> 4 & 0x03030303u, word >> 6 & 0x03030303u};
  }
  __device__ static Words unpack(const Regs& r, uint32_t) {
    const int sub = r.sub;
    return {{quants(r.q.x), quants(r.q.y)},
            {sub & 15, sub >> 8 & 15},
            {sub >> 4 & 15, sub >> 12},
            half_bits(r.scale & 0xFFFFu),
            half_bits(r.scale >> 16)};
  }
  // The integers are below 2^27.
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    const int sum = w.sub[0] * dot16(w.w.low, a.hi[0], a.lo[0]) + w.sub[1] * dot16(w.w.high, a.hi[1], a.lo[1]);
    const float low = w.min_scale * static_cast<float>(w.low[0] * a.sum[0] + w.low[1] * a.sum[1]);
    return fmaf(a.scale, fmaf(w.scale, static_cast<float>(sum), -low), total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    const Words w = unpack(r, s);
    const auto half = [&](uint4 bytes, uint32_t i) {
      bytes_above(bytes, w.scale * static_cast<float>(w.sub[i]), w.min_scale * static_cast<float>(w.low[i]),
                  out + 16 * i);
    };
    half(w.w.low, 0);
    half(w.w.high, 1);
  }
};

}  // namespace weir::cuda
