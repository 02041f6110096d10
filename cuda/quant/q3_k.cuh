// Q3_K on the GPU, in the planes of lib/quant/q3_k.h. A quant selects its value, less 4, from eight bytes.
#pragma once

#include "cuda/common/permute.cuh"
#include "cuda/quant/codebook.cuh"
#include "quant/q3_k.h"

namespace weir::cuda {

template <>
struct Format<WeightType::kQ3_K> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 6;
  struct Planes {
    const uint2* q;
    const uint32_t* more;
    const uint8_t* sub;
    const uint32_t* tops;
    const uint16_t* scale;
  };
  struct Regs {
    uint2 q;
    uint32_t more, tops;
    uint16_t scale;
    uint8_t sub;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint2*>(data), reinterpret_cast<const uint32_t*>(data + 8 * n_blocks),
            data + 12 * n_blocks, reinterpret_cast<const uint32_t*>(data + 13 * n_blocks),
            reinterpret_cast<const uint16_t*>(data + 13 * n_blocks + n_blocks / 2)};
  }
  __device__ static Planes at(const Planes& p, size_t b) {
    return {p.q + b, p.more + b, p.sub + b, p.tops + b / 8, p.scale + b / 8};
  }
  // Eight lanes share the last two, so they are read through L1.
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.q), load_stream(p.more), __ldg(p.tops), __ldg(p.scale), load_stream(p.sub)};
  }
  // What the low 16 bits select of -4 .. 3.
  __device__ static uint32_t select(uint32_t word) { return permute(0xFFFEFDFCu, 0x03020100u, word); }
  __device__ static Bytes32 quants(const Regs& r) {
    const uint32_t last = (r.q.x >> 3 & 0x11111111u) | (r.q.y >> 2 & 0x22222222u) | (r.more >> 1 & 0x44444444u);
    const uint32_t a = r.q.x & 0x77777777u, b = r.q.y & 0x77777777u, c = r.more & 0x77777777u;
    return {{select(a), select(b), select(c), select(last)},
            {select(a >> 16), select(b >> 16), select(c >> 16), select(last >> 16)}};
  }
  struct Words {
    Bytes32 w;
    int sub[2];
    float scale;
  };
  __device__ static Words unpack(const Regs& r, uint32_t s) {
    const uint32_t top = r.tops >> (4 * s), sub = r.sub;
    return {quants(r),
            {static_cast<int>((sub & 15u) | (top & 3u) << 4) - 32, static_cast<int>(sub >> 4 | (top & 12u) << 2) - 32},
            half_bits(r.scale)};
  }
  // The integers are below 2^28.
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    const int sum = w.sub[0] * dot16(w.w.low, a.hi[0], a.lo[0]) + w.sub[1] * dot16(w.w.high, a.hi[1], a.lo[1]);
    return fmaf(w.scale * a.scale, static_cast<float>(sum), total);
  }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    const Words w = unpack(r, s);
    signed_to_float(w.w.low, w.scale * static_cast<float>(w.sub[0]), out);
    signed_to_float(w.w.high, w.scale * static_cast<float>(w.sub[1]), out + 16);
  }
};

}  // namespace weir::cuda
