// The input vectors of a GEMV in a block's shared memory: multiplied with the norm's weights, and quantised for the
// integer formats. Used by gemv_kernel.cuh.
#pragma once

#include "cuda/matmul/gemv.cuh"
#include "cuda/quant/formats.cuh"

namespace weir::cuda {

// The input of one unit: how many weights it has, and in how many 16-byte pieces its input is.
struct InputShape {
  uint32_t weights = 0, pieces = 0;
};
template <class F>
__host__ __device__ constexpr InputShape input_shape() {
  return {F::kUnit, F::kPieces};
}

// Bytes of shared memory for the input of one column, for a kernel that reads `unroll` groups of units at a time.
// Rounded up to whole reads: what lies beyond the end of a row is read but not used.
__host__ __device__ constexpr uint32_t column_bytes(InputShape shape, uint32_t n_cols, uint32_t unroll) {
  const uint32_t step = unroll * kGroupUnits * shape.weights;
  return (n_cols + step - 1) / step * unroll * shape.pieces * kPieceStride;
}

#ifdef __CUDACC__

// Address of the first piece of unit u.
template <class F>
__device__ std::byte* unit_at(std::byte* input, uint32_t u) {
  return input + u / kGroupUnits * (F::kPieces * kPieceStride) + u % kGroupUnits * kPieceBytes;
}

// Eight inputs of a thread, or the norm's weights for them.
struct Eight {
  float4 v[2] = {};

  __device__ void read(const float* from) {
    v[0] = reinterpret_cast<const float4*>(from)[0], v[1] = reinterpret_cast<const float4*>(from)[1];
  }
  __device__ void read_constant(const float* from) {
    v[0] = __ldg(reinterpret_cast<const float4*>(from)), v[1] = __ldg(reinterpret_cast<const float4*>(from) + 1);
  }
};

// Multiplies with the norm's weights; square += the squares of the unmultiplied inputs. The norm's scale, one number
// for all inputs, is applied to the outputs instead, so that nothing waits for it.
__device__ inline void apply_norm(Eight& x, const Eight& norm, float& square) {
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    float4& v = x.v[i];
    const float4& w = norm.v[i];
    square += fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.x, v.x, v.y * v.y)));
    v.x *= w.x, v.y *= w.y, v.z *= w.z, v.w *= w.w;
  }
}

// Packs byte kByte of each of four words into one word.
template <uint32_t kByte>
__device__ uint32_t pack_bytes(const uint32_t* word) {
  constexpr uint32_t kTwo = kByte | (4 + kByte) << 4;
  return __byte_perm(__byte_perm(word[0], word[1], kTwo), __byte_perm(word[2], word[3], kTwo), 0x5410);
}

// Prefetches a cache line into L2.
__device__ inline void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}

// Quantises eight inputs of each lane, beginning at input `at`: four neighbouring lanes share a block of 32. An
// infinity or a NaN makes the scale NaN, as on the CPU.
template <class F>
__device__ void quantize(const Eight& x, uint32_t at, uint32_t n_cols, std::byte* input) {
  float v[8];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i)
    v[4 * i] = x.v[i].x, v[4 * i + 1] = x.v[i].y, v[4 * i + 2] = x.v[i].z, v[4 * i + 3] = x.v[i].w;
  uint32_t bits = 0;  // Bits of the largest magnitude. As integers they have the order of the values, NaN above all.
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) bits = max(bits, __float_as_uint(v[i]) & 0x7FFFFFFFu);
  bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 1));
  bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 2));
  const bool finite = bits < 0x7F800000u;
  const float most = __uint_as_float(bits);
  // 32512 = 127 * 256 is the largest value for which the high byte still fits into a signed byte after the low byte was
  // rounded off. The fast division needs a normal divisor of at most 2^126, hence kSmaller; a maximum below kMin
  // counts as 0.
  constexpr float kSmaller = 1.0f / 65536.0f, kMin = 0x1p-100f;
  const float inverse = finite && most >= kMin ? __fdividef(32512.0f * kSmaller, most * kSmaller) : 0.0f;
  // Adding this to a value below 2^22 rounds it to the nearest integer, which is then in the low bits of the sum.
  // Conversion instructions are slow.
  constexpr float kRounder = 12582912.0f;  // 2^23 + 2^22
  constexpr uint32_t kRounderBits = 0x4B400000u;
  uint32_t q[8], above[8], total = 0;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    q[i] = __float_as_uint(__fmul_rn(v[i], inverse) + kRounder);
    above[i] = q[i] + 128;
    total += q[i] - kRounderBits;
  }
  uint32_t high[2], low[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    high[i] = pack_bytes<1>(above + 4 * i);
    low[i] = pack_bytes<0>(q + 4 * i);
  }
  const uint32_t half_sum = total + __shfl_xor_sync(kAllLanes, total, 1);
  const uint32_t other_sum = __shfl_xor_sync(kAllLanes, half_sum, 2);
  if (at >= n_cols) return;
  const uint32_t part = at / 8 % 4;
  std::byte* unit = unit_at<F>(input, at / F::kUnit);
  std::byte* pieces = unit + part / 2 * kPieceStride + part % 2 * sizeof(uint2);
  *reinterpret_cast<uint2*>(pieces) = make_uint2(high[0], high[1]);
  *reinterpret_cast<uint2*>(pieces + 2 * kPieceStride) = make_uint2(low[0], low[1]);
  if (part != 0) return;
  const uint32_t scale = finite ? __float_as_uint(most * (1.0f / 32512.0f)) : 0x7FC00000u;
  const uint32_t words[4] = {scale, half_sum + other_sum, half_sum, other_sum};
  std::byte* to = unit + 4 * kPieceStride - at / F::kUnit % kGroupUnits * (kPieceBytes - sizeof(uint32_t));
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(to + i * Act::kWordStride) = words[i];
}

template <class F>
__device__ void store_floats(const Eight& x, uint32_t at, uint32_t n_cols, std::byte* input) {
  if (at >= n_cols) return;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t quad = at / 4 + i;
    *reinterpret_cast<float4*>(unit_at<F>(input, quad / F::kPieces) + quad % F::kPieces * kPieceStride) = x.v[i];
  }
}

#endif  // __CUDACC__

}  // namespace weir::cuda
