// What the float formats have in common: rows as in the file, 16 bytes per lane and load.
#pragma once

#include "cuda/quant/block_dot.cuh"

namespace weir::cuda {

// A piece of the input holds four activations.
template <class Self, uint32_t kWeights>
struct FloatFormat {
  static constexpr bool kInteger = false;
  static constexpr uint32_t kUnit = kWeights, kPieces = kWeights / 4, kRegisters = 4;
  struct Planes {
    const uint4* data;
  };
  struct Regs {
    uint4 data;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t) {
    return {reinterpret_cast<const uint4*>(data)};
  }
  __device__ static Planes at(const Planes& p, size_t unit) { return {p.data + unit}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.data)}; }
  struct Words {
    float w[kWeights];
  };
  __device__ static Words unpack(const Regs& r, uint32_t) {
    Words words;
    Self::decode(r, 0, words.w);
    return words;
  }
  __device__ static float dot(const Words& words, const std::byte* at, float total) {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < kPieces; ++i) {
      const float4 v = *reinterpret_cast<const float4*>(at + i * kPieceStride);
      const float* w = words.w + 4 * i;
      sum += fmaf(w[3], v.w, fmaf(w[2], v.z, fmaf(w[0], v.x, w[1] * v.y)));
    }
    return total + sum;
  }
};

}  // namespace weir::cuda
