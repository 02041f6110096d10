// IQ3_S on the GPU, in the planes of lib/quant/iq3_s.h.
#pragma once

#include "cuda/quant/grid.cuh"
#include "quant/iq3_s.h"

namespace weir::cuda {

__device__ const uint16_t kGridIQ3_S[512] = {
#define G(even, odd) even, odd
#include "quant/iq3_s_grid.inc"
#undef G
};

template <>
struct Format<WeightType::kIQ3_S> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 6;
  static constexpr uint32_t kEntries = 512;
  struct Planes {
    const uint2* q;
    const uint32_t* signs;
    const uint8_t* high;
    const uint32_t* sub;
    const uint16_t* scale;
  };
  struct Regs {
    uint2 q;
    uint32_t signs, sub;
    uint16_t scale;
    uint8_t high;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint2*>(data), reinterpret_cast<const uint32_t*>(data + 8 * n_blocks),
            data + 12 * n_blocks, reinterpret_cast<const uint32_t*>(data + 13 * n_blocks),
            reinterpret_cast<const uint16_t*>(data + 13 * n_blocks + n_blocks / 2)};
  }
  __device__ static Planes at(const Planes& p, size_t b) {
    return {p.q + b, p.signs + b, p.high + b, p.sub + b / 8, p.scale + b / 8};
  }
  // Eight lanes share the last two, so they are read through L1.
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.q), load_stream(p.signs), __ldg(p.sub), __ldg(p.scale), load_stream(p.high)};
  }
  __device__ static uint32_t entry(uint32_t number) { return spread_nibbles_over_bytes(__ldg(kGridIQ3_S + number)); }
  // The weights are 2n + 1: n is an entry's number of three bits, or its complement, -n - 1, for a negative weight.
  struct Words {
    Bytes32 n;
    int sub;
    float scale;
  };
  // 2n + 1 of each byte.
  __device__ static uint4 odd_bytes(uint4 n) {
    const auto odd = [](uint32_t four) { return (four & 0x7F7F7F7Fu) << 1 | 0x01010101u; };
    return {odd(n.x), odd(n.y), odd(n.z), odd(n.w)};
  }
  template <class Table>
  __device__ static Words unpack(const Regs& r, uint32_t s, const Table& table) {
    const uint32_t high = r.high;
    const auto number = [&](uint32_t i) { return byte_of(i < 4 ? r.q.x : r.q.y, i % 4) | (high << (8 - i) & 256u); };
    const auto weight = [](uint32_t bytes, uint32_t minus) { return bytes ^ minus; };
    return {grid3_block(table, r.signs, number, weight), odd_scale(r.sub >> (4 * s) & 15u), half_bits(r.scale)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    return fmaf(w.scale * a.scale, static_cast<float>(w.sub * (2 * dot32(w.n, a) + a.both)), total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    const Words w = unpack(r, s, EntriesInMemory<Format>());
    const float step = w.scale * static_cast<float>(w.sub);
    signed_to_float(odd_bytes(w.n.low), step, out);
    signed_to_float(odd_bytes(w.n.high), step, out + 16);
  }
};

}  // namespace weir::cuda
