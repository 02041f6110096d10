// Keys and values of a page as operands of tensor-core MMAs, loaded from memory straight into the registers of the MMA.
// Which channel stands in which column does not matter as long as both operands agree.
#pragma once

#include "cuda/attn/head_size.cuh"
#include "cuda/common/mma_bf16.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

template <uint32_t kDim>
struct PageKeys {
  uint4 part[2][kDim / 32];  // tokens 8t + lane / 4, channels 32 g + 8 (lane % 4) ...
};
template <uint32_t kDim>
struct PageValues {
  uint4 part[kDim / 64][4];  // tokens 2c, 2c + 1, 2c + 8, 2c + 9 for c = lane % 4, channels 64 p + 8 (lane / 4) ...
};

// Plain loads, not the read-only path: this kernel itself may have written the open page.
__device__ inline uint4 load16(const uint16_t* p) { return *reinterpret_cast<const uint4*>(p); }

template <class Head>
__device__ void load_keys(const Head& size, const uint16_t* page, uint32_t len, PageKeys<Head::kDim>& out) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
    const uint32_t token = t * 8 + lane / 4;
#pragma unroll
    for (uint32_t g = 0; g < Head::kDim / 32; ++g) {
      const uint32_t channel = g * 32 + lane % 4 * 8;
      out.part[t][g] =
          token < len && size.has(channel) ? load16(page + token * size.dim() + channel) : make_uint4(0, 0, 0, 0);
    }
  }
}

// Rows of a page beyond `len` can hold anything, even NaN. They are loaded as 0, so that they vanish in the MMA.
// The channels from 64 p on.
template <class Head>
__device__ void load_values_part(const Head& size, const uint16_t* page, uint32_t len, uint32_t p, uint4 (&out)[4]) {
  const uint32_t lane = threadIdx.x % kWarp, channel = p * 64 + lane / 4 * 8;
  const uint16_t* values = page + kPageTokens * size.dim();
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t token = lane % 4 * 2 + i % 2 + i / 2 * 8;
    out[i] = token < len && size.has(channel) ? load16(values + token * size.dim() + channel) : make_uint4(0, 0, 0, 0);
  }
}

template <class Head>
__device__ void load_values(const Head& size, const uint16_t* page, uint32_t len, PageValues<Head::kDim>& out) {
#pragma unroll
  for (uint32_t p = 0; p < Head::kDim / 64; ++p) load_values_part(size, page, len, p, out.part[p]);
}

__device__ inline uint32_t word_of(const uint4& v, uint32_t i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Registers of queries in shared memory as the MMA's A operand; step `i` multiplies the channels that load_keys puts
// into it.
template <uint32_t kDim>
__device__ void query_fragment(const float (*q)[kDim], uint32_t n_heads, uint32_t i, uint32_t (&out)[4]) {
  const uint32_t lane = threadIdx.x % kWarp, head = lane / 4;
  const float4 x = head < n_heads ? *reinterpret_cast<const float4*>(&q[head][i / 2 * 32 + lane % 4 * 8 + i % 2 * 4])
                                  : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  out[0] = split_bf16(x.x, x.y, out[1]);
  out[2] = split_bf16(x.z, x.w, out[3]);
}

// Dot products of the query heads with a page's tokens: out[t][e] is token 8t + 2 (lane % 4) + e of head lane / 4.
template <uint32_t kDim, class F>
__device__ void page_dots(const PageKeys<kDim>& keys, const F& fragment, float (&out)[2][2]) {
  float c[2][4] = {};
#pragma unroll
  for (uint32_t i = 0; i < kDim / 16; ++i) {
    uint32_t a[4];
    fragment(i, a);
#pragma unroll
    for (uint32_t t = 0; t < 2; ++t)
      mma_bf16(c[t], a, word_of(keys.part[t][i / 2], i % 2 * 2), word_of(keys.part[t][i / 2], i % 2 * 2 + 1));
  }
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
    out[t][0] = c[t][0] + c[t][2];
    out[t][1] = c[t][1] + c[t][3];
  }
}

__device__ inline void split_weights(const float (&weight)[2][2], uint32_t (&a)[4]) {
  a[0] = split_bf16(weight[0][0], weight[0][1], a[1]);
  a[2] = split_bf16(weight[1][0], weight[1][1], a[3]);
}

template <uint32_t kSums>
__device__ void add_values_part(const uint4 (&part)[4], const uint32_t (&a)[4], uint32_t p, float (&acc)[kSums][4]) {
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) {
    const uint32_t pick = j % 2 == 0 ? 0x5410u : 0x7632u;
    const uint32_t b0 = __byte_perm(word_of(part[0], j / 2), word_of(part[1], j / 2), pick);
    const uint32_t b1 = __byte_perm(word_of(part[2], j / 2), word_of(part[3], j / 2), pick);
    mma_bf16(acc[p * 8 + j], a, b0, b1);
  }
}

// acc += weights * values. For head lane / 4, acc[8 p + j] has the channels 64 p + 16 (lane % 4) + j and that + 8. Its
// first two elements come from the leading bf16 parts of the weights, its last two (MMA rows 8..15) from the
// remainders.
template <uint32_t kDim>
__device__ void add_values(const PageValues<kDim>& v, const float (&weight)[2][2], float (&acc)[kDim / 8][4]) {
  uint32_t a[4];
  split_weights(weight, a);
#pragma unroll
  for (uint32_t p = 0; p < kDim / 64; ++p) add_values_part(v.part[p], a, p, acc);
}

// The same with values that are loaded part by part, for heads whose values do not fit in registers beside the sums.
template <class Head>
__device__ void load_and_add_values(const Head& size, const uint16_t* page, uint32_t len, const float (&weight)[2][2],
                                    float (&acc)[Head::kDim / 8][4]) {
  uint32_t a[4];
  split_weights(weight, a);
#pragma unroll
  for (uint32_t p = 0; p < Head::kDim / 64; ++p) {
    uint4 part[4];
    load_values_part(size, page, len, p, part);
    add_values_part(part, a, p, acc);
  }
}

#endif  // __CUDACC__

}  // namespace weir::cuda
