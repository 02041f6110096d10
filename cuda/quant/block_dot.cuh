// The dot product of quantised weights with quantised activations, and what a weight format defines for it
// (cuda/quant/<type>.cuh).
//
// Activations of integer dot products have 16 bits: x = scale * (256 hi + lo) with one scale per block of 32; hi and lo
// are signed bytes. So two dp4a multiply four weights by four activations, and 15 bits of each activation survive. Act
// describes their layout in shared memory.
#pragma once

#include "cuda/common/base.cuh"
#include "cuda/common/load_stream.cuh"
#include "quant/weight_type.h"

namespace weir::cuda {

// Units that the lanes of a warp read together. Inputs in shared memory are laid out in groups of this many units: the
// 16-byte pieces of one unit are kPieceStride apart, so that a lane needs one address per group and the reads of
// neighbouring lanes have no bank conflicts.
inline constexpr uint32_t kGroupUnits = 32, kPieceBytes = 16, kPieceStride = kGroupUnits * kPieceBytes;

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

// Spreads four bits over four bytes, as bit 4 of each.
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

// step * byte - low, rounded once: so explicit that every kernel decodes the same bits.
__device__ inline void bytes_above(uint4 w, float step, float low, float* out) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i) out[i] = fmaf(step, static_cast<float>(words[i / 4] >> (i % 4 * 8) & 255u), -low);
}

// bytes_to_float of signed bytes.
__device__ inline void signed_to_float(uint4 w, float step, float* out) {
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (uint32_t i = 0; i < 16; ++i)
    out[i] = step * static_cast<float>(static_cast<int8_t>(words[i / 4] >> (i % 4 * 8)));
}

// The 32 weights of a block as signed bytes, in the order of an Act's halves.
struct Bytes32 {
  uint4 low, high;
};
__device__ inline Bytes32 unpack_nibbles(uint4 q) { return {low_nibbles(q), high_nibbles(q)}; }
// Bit i of `high` is bit 4 of weight i.
__device__ inline Bytes32 unpack_nibbles(uint4 q, uint32_t high) {
  return {low_nibbles(q) | spread16(high), high_nibbles(q) | spread16(high >> 16)};
}

// 32 quantised activations, a unit of the integer formats, as a lane reads them from shared memory: two pieces with the
// hi bytes of each half, two with the lo bytes. In place of a fifth piece lie four arrays of words, one word per unit
// of the group: scales, and the sums of 256 hi + lo over both halves, over the first and over the second. Separate
// arrays, so that words that a format does not need are not read.
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

// The dot product of a block's weights with the activations, before any scale.
__device__ inline int dot32(const Bytes32& w, const Act& a) {
  return dot16(w.low, a.hi[0], a.lo[0]) + dot16(w.high, a.hi[1], a.lo[1]);
}

// A weight format. Types: Planes (pointers into a matrix), Regs (what a lane loads for one block, kRegisters registers
// of 32 bits), Words (a block ready to be multiplied). Functions: planes (of a matrix), at (the planes from block b on;
// b is a multiple of 8 unless p is the matrix's beginning), load (the first block of the planes), unpack, dot, and
// decode to f32. kInteger formats multiply an Act. The others multiply unquantised activations, in units of kUnit
// weights whose input has kPieces pieces.
//
// dot returns `total` plus the dot product of the block and the input `at`. Its fma are explicit: if the compiler chose
// them, kernels with different surrounding code could round differently.
//
// Formats with grids also have kEntries and entry(number), and unpack takes the table of entries (grid.cuh).
template <WeightType T>
struct Format;

// What the lanes of a GEMV's block unpack with. Where a format has a table (grid.cuh) it takes bytes(room) of shared
// memory, which all threads fill: a power of two, as much as is of use of `room` bytes, and kMinBytes at least.
template <class F>
struct Entries {
  static constexpr uint32_t kMinBytes = 0;
  static uint32_t bytes(size_t) { return 0; }
  __device__ Entries(std::byte*, uint32_t, uint32_t) {}
  __device__ typename F::Words unpack(const typename F::Regs& r, uint32_t s) const { return F::unpack(r, s); }
};

}  // namespace weir::cuda
