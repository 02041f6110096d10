// Rows as sketches have them (lib/ops/sketch.h): rotated in shared memory by a block, and rounded.
#pragma once

#include "cuda/attn/head_size.cuh"
#include "cuda/common/base.cuh"
#include "cuda/pages/kv_rows.cuh"
#include "ops/hadamard.h"
#include "ops/page_score.h"
#include "ops/sketch.h"
#include "quant/half.h"

namespace weir::cuda {

// page_score of sketches, for heads of up to kMaxHeadDim elements.
Status sketch_score(OpContext& cx, const PageScoreArgs& a);

#ifdef __CUDACC__

// Rotates rows [n, d] in shared memory, which the block has written; every thread of it must call. The sums are those
// of add_by_hadamard, to the last bit.
template <uint32_t kThreads>
__device__ inline void rotate_rows(float* rows, uint32_t n, uint32_t d) {
  const auto block = static_cast<uint32_t>(hadamard_block(d));
  __syncthreads();
  for (uint32_t half = 1; half < block; half *= 2) {
    for (uint32_t i = threadIdx.x; i < n * d / 2; i += kThreads) {
      const uint32_t pair = i % (d / 2);
      float* x = rows + i / (d / 2) * d + pair / half * 2 * half + pair % half;
      const float first = x[0], second = x[half];
      x[0] = first + second;
      x[half] = first - second;
    }
    __syncthreads();
  }
}

__device__ inline uint32_t sketch_code_of(float x, float border) {
  return x < 0.0f ? (x < -border ? 0u : 1u) : (x < border ? 2u : 3u);
}

// The sketch of the full page with these keys, by a block: sketch_page's bits. All of its threads must call; it may be
// called again at once.
template <uint32_t kThreads, class Keys>
__device__ void sketch_page_by_block(const Keys& keys, uint32_t d, uint16_t* out) {
  __shared__ float rows[kPageTokens * kMaxHeadDim];
  __shared__ float borders[kPageTokens];  // negative: the key is not finite
  static_assert(kThreads >= kPageTokens);
  const uint32_t n_words = sketch_words(d), token = threadIdx.x;
  auto* words = reinterpret_cast<uint32_t*>(out);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kPageTokens * d; i += kThreads) rows[i] = keys.at(i / d, i % d);
  rotate_rows<kThreads>(rows, kPageTokens, d);
  if (token < kPageTokens) {
    float square = 0.0f;
    for (uint32_t i = 0; i < d; ++i) square = __fadd_rn(square, __fmul_rn(rows[token * d + i], rows[token * d + i]));
    const float border = __fmul_rn(2.0f * kSketchHalfStep, __fsqrt_rn(__fdiv_rn(square, static_cast<float>(d))));
    borders[token] = isfinite(square) ? border : -1.0f;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n_words * kPageTokens; i += kThreads) {
    const uint32_t t = i % kPageTokens, first = i / kPageTokens * kSketchChannels;
    const float border = borders[t];
    uint32_t word = 0;
    for (uint32_t k = 0; k < min(kSketchChannels, d - first); ++k)
      word |= sketch_code_of(rows[t * d + first + k], border) << (k % 4 * 8 + k / 4 * 2);
    words[i] = border < 0.0f ? 0 : word;
  }
  if (token >= kPageTokens) return;
  float along = 0.0f, length = 0.0f;
  for (uint32_t i = 0; i < d; ++i) {
    const float x = rows[token * d + i];
    const float level = 2.0f * static_cast<float>(sketch_code_of(x, borders[token])) - 3.0f;
    along = __fadd_rn(along, __fmul_rn(x, level));
    length = __fadd_rn(length, __fmul_rn(level, level));
  }
  const float scale = __fdiv_rn(__fdiv_rn(along, length), static_cast<float>(hadamard_block(d)));
  out[size_t{n_words} * kPageTokens * 2 + token] = borders[token] < 0.0f ? kSketchInfinite : f32_to_bf16(scale);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
