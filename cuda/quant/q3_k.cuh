// Q3_K on the GPU. Planes: [B][2] and [B][1] words, see below; [B] bytes, whose nibbles are bits 0..3 of the sub-scales
// of weights 0..15 and 16..31; [B/8] u32, whose nibble s has bits 4..5 of the same two of sub-block s; [B/8] f16
// scales. B is the number of 32-weight blocks of the matrix, in row order.
//
// The three words of a block have eight quants each in the low three bits of their nibbles, in the order of
// codebook.cuh: word i weights 4i .. 4i+3 and 16+4i .. 16+4i+3. The eight quants that are left, i = 3, have their bit k
// in the highest bits of the nibbles of word k. A quant selects its value, less 4, from eight bytes.
#pragma once

#include "cuda/common/permute.cuh"
#include "cuda/quant/codebook.cuh"
#include "quant/q3_k.h"

namespace weir::cuda {

template <>
struct PlaneLayout<WeightType::kQ3_K> {
  static constexpr uint32_t kBytes[] = {64, 32, 8, 4, 2};

  static void place(const BlockQ3_K& block, size_t b, size_t n, uint8_t* out) {
    uint32_t tops = 0;
    for (size_t s = 0; s < 8; ++s) {
      uint32_t words[3] = {};
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t q = (block.low[s / 4 * 32 + i] >> (s % 4 * 2) & 3u) | (block.high[i] >> s & 1u) << 2;
        const uint32_t word = i % 16 / 4, shift = 4 * (i % 4 + i / 16 * 4);
        if (word < 3) words[word] |= q << shift;
        for (uint32_t k = 0; word == 3 && k < 3; ++k) words[k] |= (q >> k & 1) << (shift + 3);
      }
      std::memcpy(out + 8 * (b + s), words, 8);
      std::memcpy(out + 8 * n + 4 * (b + s), words + 2, 4);
      const auto first = static_cast<uint32_t>(q3_k_sub_scale(block.sub_scales, 2 * s));
      const auto second = static_cast<uint32_t>(q3_k_sub_scale(block.sub_scales, 2 * s + 1));
      out[12 * n + b + s] = static_cast<uint8_t>((first & 15) | (second & 15) << 4);
      tops |= (first >> 4 | second >> 4 << 2) << (4 * s);
    }
    std::memcpy(out + 13 * n + b / 2, &tops, 4);
    std::memcpy(out + 13 * n + n / 2 + b / 4, &block.scale, 2);
  }
};

#ifdef __CUDACC__

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

#endif  // __CUDACC__

}  // namespace weir::cuda
