// Weight matrices as they lie in device memory, and how a lane computes with them.
//
// Files interleave scales and quants in blocks of 18 to 210 bytes, which 16-byte loads cannot read. weights.cpp takes them apart into planes, each
// aligned, of the same number of bytes in all; B is the number of 32-weight blocks of the matrix, in row order:
//   Q8_0  [B][16] weights 0..15 of each block, [B][16] weights 16..31, [B] f16 scales
//   Q4_0  [B][16] bytes: low nibbles are weights 0..15, high nibbles 16..31; [B] f16 scales
//   Q4_K  [B][16] as Q4_0; [B/8][16] headers: f16 scale, f16 min_scale, 12 bytes of sub-scales (quant/k_scales.h)
//   Q5_K  [B][16] as Q4_0; [B] u32, bit i is bit 4 of weight i; [B/8][16] headers as Q4_K
//   Q6_K  [B][16] as Q4_0; [B][2] u32: bits 2w..2w+1 of byte k of word h are bits 4..5 of weight 16h + 4w + k; [B][2] sub-scales; [B/8] f16 scales
//   F16, BF16, F32  rows as in the file
//
// Activations of integer dot products are 16-bit: x = scale * (256 hi + lo) with one scale per block of 32, hi and lo signed bytes, so that two dp4a
// multiply four weights by four activations and 15 bits of each survive. How they lie in shared memory: see Act.
#pragma once

#include "cuda/common.cuh"
#include "quant/weight_type.h"

namespace weir::cuda {

// Units that the lanes of a warp take together. Inputs in shared memory lie in groups of so many: a lane's pieces of 16 bytes of one unit are kPieceStride
// apart, so that one address per group is enough and neighbouring lanes' reads do not conflict.
inline constexpr uint32_t kGroupUnits = 32, kPieceBytes = 16, kPieceStride = kGroupUnits * kPieceBytes;

#ifdef __CUDACC__

// Streaming loads: weights are read once a step, the first-level cache is for the rest.
__device__ inline uint4 load_stream(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ inline uint2 load_stream(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ inline uint32_t load_stream(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ inline uint16_t load_stream(const uint16_t* p) {
  uint16_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}

__device__ inline float half_bits(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

// 256 * (w . hi) + w . lo over 16 weights (signed bytes).
__device__ inline int dot16(uint4 w, int4 hi, int4 lo) {
  int h = __dp4a(static_cast<int>(w.x), hi.x, 0), l = __dp4a(static_cast<int>(w.x), lo.x, 0);
  h = __dp4a(static_cast<int>(w.y), hi.y, h), l = __dp4a(static_cast<int>(w.y), lo.y, l);
  h = __dp4a(static_cast<int>(w.z), hi.z, h), l = __dp4a(static_cast<int>(w.z), lo.z, l);
  h = __dp4a(static_cast<int>(w.w), hi.w, h), l = __dp4a(static_cast<int>(w.w), lo.w, l);
  return h * 256 + l;
}

__device__ inline uint4 low_nibbles(uint4 q) {
  return {q.x & 0x0F0F0F0Fu, q.y & 0x0F0F0F0Fu, q.z & 0x0F0F0F0Fu, q.w & 0x0F0F0F0Fu};
}
__device__ inline uint4 high_nibbles(uint4 q) { return low_nibbles({q.x >> 4, q.y >> 4, q.z >> 4, q.w >> 4}); }
__device__ inline uint4 operator|(uint4 a, uint4 b) { return {a.x | b.x, a.y | b.y, a.z | b.z, a.w | b.w}; }

// Four bits as bit 4 of four bytes.
__device__ inline uint32_t spread_bits(uint32_t bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4; }
__device__ inline uint4 spread16(uint32_t bits) {
  return {spread_bits(bits), spread_bits(bits >> 4), spread_bits(bits >> 8), spread_bits(bits >> 12)};
}
__device__ inline uint4 spread_pairs(uint32_t word) {
  return {word << 4 & 0x30303030u, word << 2 & 0x30303030u, word & 0x30303030u, word >> 2 & 0x30303030u};
}

__device__ inline void bytes_to_float(uint4 w, float offset, float step, float* out) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) out[i] = step * (static_cast<float>(words[i / 4] >> (i % 4 * 8) & 255u) - offset);
}

// Scale and minimum of sub-block s (0..7) of a K-quant header.
struct KStep {
  float step, low;
};
__device__ inline KStep k_step(uint4 header, uint32_t s) {
  const uint32_t shift = s % 4 * 8;
  uint32_t scale = header.y >> shift & 255u, minimum = header.z >> shift & 255u;
  if (s < 4) {
    scale &= 63u;
    minimum &= 63u;
  } else {
    const uint32_t low = header.w >> shift & 255u;
    scale = (low & 15u) | (scale >> 6) << 4;
    minimum = low >> 4 | (minimum >> 6) << 4;
  }
  return {half_bits(header.x & 0xFFFFu) * static_cast<float>(scale),
          half_bits(header.x >> 16) * static_cast<float>(minimum)};
}

// Weights of a block as signed bytes, in the order of an Act's halves.
struct Bytes32 {
  uint4 low, high;
};
__device__ inline Bytes32 unpack_nibbles(uint4 q) { return {low_nibbles(q), high_nibbles(q)}; }

// 32 quantised activations, a unit of the integer formats, as a lane finds them in shared memory: pieces with the bytes hi of each half, then lo, and
// instead of a fifth the words of all lanes one after another, so that words that a format does not need are not read: scales, sums of 256 hi + lo over
// both halves, over the first and over the second.
struct Act {
  static constexpr uint32_t kPieces = 5, kWordStride = kGroupUnits * sizeof(uint32_t);
  int4 hi[2], lo[2];
  float scale;
  int both, sum[2];

  __device__ explicit Act(const std::byte* at)
      : hi{piece(at, 0), piece(at, 1)},
        lo{piece(at, 2), piece(at, 3)},
        scale(number(at)),
        both(word(at, 1)),
        sum{word(at, 2), word(at, 3)} {}

 private:
  __device__ static int4 piece(const std::byte* at, uint32_t i) {
    return *reinterpret_cast<const int4*>(at + i * kPieceStride);
  }
  __device__ static float number(const std::byte* at) { return __int_as_float(word(at, 0)); }
  __device__ static int word(const std::byte* at, uint32_t i) {
    const std::byte* words = at - threadIdx.x % kGroupUnits * (kPieceBytes - sizeof(uint32_t)) + 4 * kPieceStride;
    return *reinterpret_cast<const int*>(words + i * kWordStride);
  }
};

// The block's weights times the activations, before any scale.
__device__ inline int dot32(const Bytes32& w, const Act& a) {
  return dot16(w.low, a.hi[0], a.lo[0]) + dot16(w.high, a.hi[1], a.lo[1]);
}

// Q4_K and Q5_K.
struct KWords {
  Bytes32 w;
  KStep k;
};
__device__ inline float k_dot(const KWords& w, const Act& a, float total) {
  const float low = w.k.low * static_cast<float>(a.both);
  return fmaf(a.scale, fmaf(w.k.step, static_cast<float>(dot32(w.w, a)), -low), total);
}

// A format: Planes (pointers into a matrix), Regs (what a lane loads for one block, kRegisters of 32 bits), Words (a block ready to be multiplied), and
// functions of them: planes of a matrix, at (the planes from block b on; b is a multiple of 8 where p is not the matrix's beginning), load (the block where
// they begin), unpack, dot, decode to f32. kInteger formats multiply an Act; the others unquantised activations, in units of kUnit weights, whose input is
// kPieces pieces.
//
// dot returns `total` plus the product of the block and the input `at`. Its fused multiplications are written out: left to the compiler, kernels with
// different code around them could round differently.
template <WeightType T>
struct Format;

template <>
struct Format<WeightType::kQ8_0> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 9;
  struct Planes {
    const uint4 *low, *high;
    const uint16_t* scale;
  };
  struct Regs {
    uint4 low, high;
    uint16_t scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint4*>(data) + n_blocks,
            reinterpret_cast<const uint16_t*>(data + 32 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.low + b, p.high + b, p.scale + b}; }
  __device__ static Regs load(const Planes& p) {
    return {load_stream(p.low), load_stream(p.high), load_stream(p.scale)};
  }
  struct Words {
    Bytes32 w;
    float scale;
  };
  __device__ static Words unpack(const Regs& r, uint32_t) { return {{r.low, r.high}, half_bits(r.scale)}; }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    return fmaf(w.scale * a.scale, static_cast<float>(dot32(w.w, a)), total);
  }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    const uint32_t words[8] = {r.low.x, r.low.y, r.low.z, r.low.w, r.high.x, r.high.y, r.high.z, r.high.w};
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i)
      out[i] = half_bits(r.scale) * static_cast<float>(static_cast<int8_t>(words[i / 4] >> (i % 4 * 8)));
  }
};

template <>
struct Format<WeightType::kQ4_0> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 5;
  struct Planes {
    const uint4* q;
    const uint16_t* scale;
  };
  struct Regs {
    uint4 q;
    uint16_t scale;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint16_t*>(data + 16 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.scale + b}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), load_stream(p.scale)}; }
  struct Words {
    Bytes32 w;
    float scale;
  };
  __device__ static Words unpack(const Regs& r, uint32_t) { return {unpack_nibbles(r.q), half_bits(r.scale)}; }
  __device__ static float dot(const Words& w, const std::byte* at, float total) {
    const Act a(at);
    return fmaf(w.scale * a.scale, static_cast<float>(dot32(w.w, a) - 8 * a.both), total);
  }
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    bytes_to_float(low_nibbles(r.q), 8.0f, half_bits(r.scale), out);
    bytes_to_float(high_nibbles(r.q), 8.0f, half_bits(r.scale), out + 16);
  }
};

template <>
struct Format<WeightType::kQ4_K> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 8;
  struct Planes {
    const uint4 *q, *header;
  };
  struct Regs {
    uint4 q, header;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint4*>(data) + n_blocks};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.header + b / 8}; }
  // Eight lanes share a header, so it is worth keeping in the first-level cache.
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), __ldg(p.header)}; }
  using Words = KWords;
  __device__ static Words unpack(const Regs& r, uint32_t s) { return {unpack_nibbles(r.q), k_step(r.header, s)}; }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return k_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    const KStep k = k_step(r.header, s);
    bytes_to_float(low_nibbles(r.q), 0.0f, k.step, out);
    bytes_to_float(high_nibbles(r.q), 0.0f, k.step, out + 16);
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) out[i] -= k.low;
  }
};

template <>
struct Format<WeightType::kQ5_K> {
  static constexpr bool kInteger = true;
  static constexpr uint32_t kUnit = 32, kPieces = Act::kPieces, kRegisters = 9;
  struct Planes {
    const uint4* q;
    const uint32_t* high;
    const uint4* header;
  };
  struct Regs {
    uint4 q, header;
    uint32_t high;
  };
  __host__ __device__ static Planes planes(const uint8_t* data, size_t n_blocks) {
    return {reinterpret_cast<const uint4*>(data), reinterpret_cast<const uint32_t*>(data + 16 * n_blocks),
            reinterpret_cast<const uint4*>(data + 20 * n_blocks)};
  }
  __device__ static Planes at(const Planes& p, size_t b) { return {p.q + b, p.high + b, p.header + b / 8}; }
  __device__ static Regs load(const Planes& p) { return {load_stream(p.q), __ldg(p.header), load_stream(p.high)}; }
  using Words = KWords;
  __device__ static Words unpack(const Regs& r, uint32_t s) {
    return {{low_nibbles(r.q) | spread16(r.high), high_nibbles(r.q) | spread16(r.high >> 16)}, k_step(r.header, s)};
  }
  __device__ static float dot(const Words& w, const std::byte* at, float total) { return k_dot(w, Act(at), total); }
  __device__ static void decode(const Regs& r, uint32_t s, float* out) {
    const KStep k = k_step(r.header, s);
    bytes_to_float(low_nibbles(r.q) | spread16(r.high), 0.0f, k.step, out);
    bytes_to_float(high_nibbles(r.q) | spread16(r.high >> 16), 0.0f, k.step, out + 16);
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) out[i] -= k.low;
  }
};

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

// The float formats: 16 bytes a lane. A piece of the input is four activations.
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

template <>
struct Format<WeightType::kF16> : FloatFormat<Format<WeightType::kF16>, 8> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    const uint32_t words[4] = {r.data.x, r.data.y, r.data.z, r.data.w};
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) out[i] = half_bits(words[i / 2] >> (i % 2 * 16) & 0xFFFFu);
  }
};

template <>
struct Format<WeightType::kBF16> : FloatFormat<Format<WeightType::kBF16>, 8> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    const uint32_t words[4] = {r.data.x, r.data.y, r.data.z, r.data.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      out[2 * i] = bf16_low(words[i]);
      out[2 * i + 1] = bf16_high(words[i]);
    }
  }
};

template <>
struct Format<WeightType::kF32> : FloatFormat<Format<WeightType::kF32>, 4> {
  __device__ static void decode(const Regs& r, uint32_t, float* out) {
    out[0] = __uint_as_float(r.data.x);
    out[1] = __uint_as_float(r.data.y);
    out[2] = __uint_as_float(r.data.z);
    out[3] = __uint_as_float(r.data.w);
  }
};

#endif  // __CUDACC__

}  // namespace weir::cuda
