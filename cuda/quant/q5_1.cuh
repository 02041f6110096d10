// Q5_1 on the GPU. Planes: [B][16] nibbles as Q4_0 has them; [B] u32 whose bit i is bit 4 of weight i; [B] pairs of
// f16: scale and minimum. B is the number of 32-weight blocks of the matrix, in row order.
#pragma once

#include "cuda/quant/k_quant.cuh"
#include "cuda/quant/planes.h"
#include "quant/q5_1.h"

namespace weir::cuda {

template <>
struct PlaneLayout<WeightType::kQ5_1> {
  static constexpr uint32_t kBytes[] = {128, 32, 32};

  static void place(const BlockQ5_1& block, size_t b, size_t n, uint8_t* out) {
    std::memcpy(out + 16 * b, block.q, 16);
    std::memcpy(out + 16 * n + 4 * b, &block.high, 4);
    std::memcpy(out + 20 * n + 4 * b, &block, 4);  // scale and minimum come first in the block
  }
};

#ifdef __CUDACC__

template <>
struct Format<WeightType::kQ5_1> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 6;
  struct Planes {
    const uint4* q;
    const uint32_t *high, *header;
  };
  struct Regs {
    uint4 q;
    uint32_t high, header;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint32_t*>(data + 16 * n_blocks),
            reinterpret_cast<const uint32_t*>(data + 20 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.high + b, p.header + b}; }
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.q), load_stream(p.high), load_stream(p.header)};
  }
  using Words = KWords;
  __device__ static Words unpack(const Regs& r, uint32_t) {
    return {unpack_nibbles(r.q, r.high), minimum_step(r.header)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return k_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    k_decode(unpack_nibbles(r.q, r.high), minimum_step(r.header), out);
  }
};

#endif  // __CUDACC__

}  // namespace weir::cuda
