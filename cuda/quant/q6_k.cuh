// Q6_K on the GPU, in the planes of lib/quant/q6_k.h.
#pragma once

#include "cuda/quant/block_dot.cuh"
#include "quant/q6_k.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ6_K> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 8;
  struct Planes {
    const uint4* q;
    const uint2* high;
    const uint16_t* sub_scale;
    const uint16_t* scale;
  };
  struct Regs {
    uint4 q;
    uint2 high;
    uint16_t sub_scale, scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint2*>(data + 16 * n_blocks),
            reinterpret_cast<const uint16_t*>(data + 24 * n_blocks),
            reinterpret_cast<const uint16_t*>(data + 26 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) {
    return {p.q + b, p.high + b, p.sub_scale + b, p.scale + b / 8};
  }
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.q), load_stream(p.high), load_stream(p.sub_scale), __ldg(p.scale)};
  }
  __device__ static int sub(const Regs& r, uint32_t half) { return static_cast<int8_t>(r.sub_scale >> (8 * half)); }
  struct Words {
    Bytes32 w;
    float sub[2], scale;
  };
  __device__ static Words unpack(const Regs& r, uint32_t) {
    return {{low_nibbles(r.q) | spread_pairs(r.high.x), high_nibbles(r.q) | spread_pairs(r.high.y)},
            {static_cast<float>(sub(r, 0)), static_cast<float>(sub(r, 1))},
            half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    const int first = dot16(w.w.low, a.hi[0], a.lo[0]) - 32 * a.sum[0];
    const int second = dot16(w.w.high, a.hi[1], a.lo[1]) - 32 * a.sum[1];
    const float both = fmaf(w.sub[0], static_cast<float>(first), w.sub[1] * static_cast<float>(second));
    return fmaf(w.scale * a.scale, both, total);
  }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    bytes_to_float(low_nibbles(r.q) | spread_pairs(r.high.x), 32.0f, half_bits(r.scale) * static_cast<float>(sub(r, 0)),
                   out);
    bytes_to_float(high_nibbles(r.q) | spread_pairs(r.high.y), 32.0f,
                   half_bits(r.scale) * static_cast<float>(sub(r, 1)), out + 16);
  }
};

}  // namespace weir::cuda
