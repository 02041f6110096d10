// Codes of quantised keys and values as pairs of bf16, for MMAs.
//
// Numerics: the code becomes a bf16 exactly, and its product with the scale is rounded to bf16, by at most 2^-9 of the
// element. That is half a step of 8 bits for the largest elements of a block and less for the others: rounding adds
// about 2 % to the error of quantising in 8 bits, and nothing that counts to that of 4.
#pragma once

#include "cuda/common/base.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

__device__ inline __nv_bfloat162 as_bf16_pair(uint32_t bits) { return *reinterpret_cast<const __nv_bfloat162*>(&bits); }
__device__ inline uint32_t bits_of(const __nv_bfloat162& pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

// Two bf16 of 128, whose 7 lower bits are as they are in an integer. As a number that the compiler does not know: it is
// in every decoding instruction, which has room for one other constant.
__device__ inline uint32_t bf16_bias() {
  uint32_t processor;
  asm("mov.u32 %0, %%smid;" : "=r"(processor));
  return 0x43004300u | (processor & 0x80000000u);
}
// (x & kMask) | bias. Volatile: what is decoded for one use is not kept in registers for another one.
template <uint32_t kMask>
__device__ uint32_t masked(uint32_t x, uint32_t bias) {
  uint32_t out;
  asm volatile("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(x), "n"(kMask), "r"(bias));
  return out;
}
// Codes of 8 bits in bytes 0 and 2, times the scales of a pair: their 7 lower bits, less 128 if bit 7 is set. Both come
// with 128 more.
__device__ inline uint32_t decode_q8(uint32_t codes, uint32_t bias, uint32_t scales) {
  const __nv_bfloat162 low = as_bf16_pair(masked<0x007F007Fu>(codes, bias)),
                       sign = as_bf16_pair(masked<0x00800080u>(codes, bias));
  return bits_of(__hmul2(__hsub2(low, sign), as_bf16_pair(scales)));
}
// Codes of 4 bits in bits 0..3 of both halves, with 128 more; 8 stands for 0.
__device__ inline uint32_t decode_q4(uint32_t codes, uint32_t bias, uint32_t scales) {
  const __nv_bfloat162 code = as_bf16_pair(masked<0x000F000Fu>(codes, bias));
  return bits_of(__hmul2(__hsub2(code, as_bf16_pair(0x43084308u)), as_bf16_pair(scales)));
}

// Eight codes one after the other, in one word of 4 bits each or two of 8, times their scale.
__device__ inline uint4 decode_eight(uint2 codes, uint16_t scale) {
  const uint32_t bias = bf16_bias(), scales = scale * 0x10001u;
  return make_uint4(decode_q8(__byte_perm(codes.x, 0, 0x4140), bias, scales),
                    decode_q8(__byte_perm(codes.x, 0, 0x4342), bias, scales),
                    decode_q8(__byte_perm(codes.y, 0, 0x4140), bias, scales),
                    decode_q8(__byte_perm(codes.y, 0, 0x4342), bias, scales));
}
__device__ inline uint4 decode_eight(uint32_t codes, uint16_t scale) {
  const uint32_t bias = bf16_bias(), scales = scale * 0x10001u;
  // The lower half of a byte stays, the upper half moves to the second number of the pair.
  const auto pair = [&](uint32_t byte) { return decode_q4((byte & 0xFu) | (byte & 0xF0u) << 12, bias, scales); };
  return make_uint4(pair(codes), pair(codes >> 8), pair(codes >> 16), pair(codes >> 24));
}

#endif  // __CUDACC__

}  // namespace weir::cuda
