// Keys and values of a page as operands of tensor-core MMAs, loaded from memory straight into the registers of the MMA,
// or into registers from which quantised ones are decoded right before it. Which channel stands in which column does
// not matter as long as both operands agree.
// Numerics: keys and values in bf16 are multiplied as they are stored, quantised ones as kv_decode.cuh makes them.
#pragma once

#include "cuda/attn/head_size.cuh"
#include "cuda/attn/kv_decode.cuh"
#include "cuda/common/mma_bf16.cuh"
#include "cuda/pages/kv_rows.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

// --- loads -----------------------------------------------------------------------------------------------------------

// Plain loads, not the read-only path: this kernel itself may have written the open page.
template <class Vector>
__device__ Vector load_as(const uint16_t* p) {
  return *reinterpret_cast<const Vector*>(p);
}

// The scales of a part of a page, as they lie in memory: each lane has a word, of which there are at most 32. So they
// take one register while they are loaded; lanes ask each other when they decode. The scales of wide heads are read
// from memory then, as their values are.
template <uint32_t kDim>
struct PageScales {
  uint32_t word;

  template <class Head, RowFormat kRow>
  __device__ void load(const Head& size, const PageRows<kRow, const uint16_t>& rows, uint32_t len) {
    const uint32_t n = len * (size.dim() / kScaleElements), first = threadIdx.x % kWarp * 2;
    word = first < n ? load_as<uint32_t>(rows.scales(0) + first) : 0;
    if (Head::kAny && first + 1 >= n) word &= 0xFFFFu;  // behind an odd number there can be anything
  }
  // The scale of a token's channel, in the half of the word that half_of says.
  template <class Head>
  __device__ uint32_t word_of(const Head& size, uint32_t token, uint32_t channel) const {
    const uint32_t at = token * (size.dim() / kScaleElements) + channel / kScaleElements;
    const uint32_t found = __shfl_sync(kAllLanes, word, at / 2);
    return size.has(channel) ? found : 0;
  }
  template <class Head>
  static __device__ uint32_t half_of(const Head& size, uint32_t token, uint32_t channel) {
    return (Head::kAny ? token * (size.dim() / kScaleElements) + channel / kScaleElements : channel / kScaleElements) %
           2;
  }
};
template <>
struct PageScales<256> {
  const uint16_t* scales;
  uint32_t len;

  template <class Head, RowFormat kRow>
  __device__ void load(const Head&, const PageRows<kRow, const uint16_t>& rows, uint32_t n_tokens) {
    scales = rows.scales(0), len = n_tokens;
  }
  template <class Head>
  __device__ uint32_t word_of(const Head& size, uint32_t token, uint32_t channel) const {
    return token < len && size.has(channel) ? scales[token * (size.dim() / kScaleElements) + channel / kScaleElements]
                                            : 0;
  }
  template <class Head>
  static __device__ uint32_t half_of(const Head&, uint32_t, uint32_t) {
    return 0;
  }
};

// The scales of a channel of two tokens as a pair.
template <class Head, uint32_t kDim>
__device__ uint32_t scale_pair(const Head& size, const PageScales<kDim>& scales, uint32_t first, uint32_t second,
                               uint32_t channel) {
  const uint32_t low = scales.word_of(size, first, channel), high = scales.word_of(size, second, channel);
  const uint32_t pick_low = scales.half_of(size, first, channel) == 0 ? 0x10 : 0x32;
  const uint32_t pick_high = scales.half_of(size, second, channel) == 0 ? 0x5400 : 0x7600;
  return __byte_perm(low, high, pick_low | pick_high);
}

template <RowFormat kRow, uint32_t kDim>
struct PageKeys;
template <uint32_t kDim>
struct PageKeys<RowFormat::kBf16, kDim> {
  uint4 part[2][kDim / 32];  // tokens 8t + lane / 4, channels 32 g + 8 (lane % 4) ...
};
template <uint32_t kDim>
struct PageKeys<RowFormat::kQ8, kDim> {
  uint4 part[2][kDim / 64];  // tokens as above, channels 64 g + 16 (lane % 4) ...
  PageScales<kDim> scales;
};

template <RowFormat kRow, uint32_t kDim>
struct PageValues;
template <uint32_t kDim>
struct PageValues<RowFormat::kBf16, kDim> {
  static constexpr uint32_t kEach = 8, kParts = kDim / 64;  // channels of a lane in a part
  // A part has tokens 2c, 2c + 1, 2c + 8, 2c + 9 for c = lane % 4, channels 64 p + 8 (lane / 4) ...
  struct Part {
    uint4 token[4];
  };
  Part part[kParts];
};
// Quantised values: the same tokens, and channels 8 kEach p + kEach (lane / 4) ..., which share a scale.
template <class Codes, uint32_t kChannels, uint32_t kDim>
struct QuantisedValues {
  static constexpr uint32_t kEach = kChannels, kParts = kDim / (8 * kEach);
  struct Part {
    Codes token[4];
    PageScales<kDim> scales;
  };
  Part part[kParts];
};
template <uint32_t kDim>
struct PageValues<RowFormat::kQ8, kDim> : QuantisedValues<uint4, 16, kDim> {};
template <>
struct PageValues<RowFormat::kQ8, 64> : QuantisedValues<uint2, 8, 64> {};
template <uint32_t kDim>
struct PageValues<RowFormat::kQ4, kDim> : QuantisedValues<uint2, 16, kDim> {};
template <>
struct PageValues<RowFormat::kQ4, 64> : QuantisedValues<uint32_t, 8, 64> {};

// Rows of a page beyond `len` can hold anything, even NaN. They are loaded as 0, so that they vanish in the MMA; of
// quantised rows only the scales, because a code is a number whatever its bits are.
template <class Head>
__device__ void load_keys(const Head& size, const PageRows<RowFormat::kBf16, const uint16_t>& keys, uint32_t len,
                          PageKeys<RowFormat::kBf16, Head::kDim>& out) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
    const uint32_t token = t * 8 + lane / 4;
#pragma unroll
    for (uint32_t g = 0; g < Head::kDim / 32; ++g) {
      const uint32_t channel = g * 32 + lane % 4 * 8;
      out.part[t][g] = token < len && size.has(channel) ? load_as<uint4>(keys.units + token * size.dim() + channel)
                                                        : make_uint4(0, 0, 0, 0);
    }
  }
}

template <class Head>
__device__ void load_keys(const Head& size, const PageRows<RowFormat::kQ8, const uint16_t>& keys, uint32_t len,
                          PageKeys<RowFormat::kQ8, Head::kDim>& out) {
  const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
    const uint32_t token = t * 8 + lane / 4;
    const uint16_t* codes = keys.codes(token);
#pragma unroll
    for (uint32_t g = 0; g < Head::kDim / 64; ++g) {
      const uint32_t channel = g * 64 + lane % 4 * 16;
      out.part[t][g] = size.has(channel) ? load_as<uint4>(codes + channel / 2) : make_uint4(0, 0, 0, 0);
    }
  }
  out.scales.load(size, keys, len);
}

template <class Head, RowFormat kRow>
__device__ void load_values_part(const Head& size, const PageRows<kRow, const uint16_t>& values, uint32_t len,
                                 uint32_t p, typename PageValues<kRow, Head::kDim>::Part& out) {
  constexpr uint32_t kEach = PageValues<kRow, Head::kDim>::kEach;
  const uint32_t lane = threadIdx.x % kWarp, channel = p * 8 * kEach + lane / 4 * kEach;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t token = lane % 4 * 2 + i % 2 + i / 2 * 8;
    if constexpr (kRow == RowFormat::kBf16) {
      out.token[i] = token < len && size.has(channel) ? load_as<uint4>(values.units + token * size.dim() + channel)
                                                      : make_uint4(0, 0, 0, 0);
    } else {
      using Codes = std::remove_reference_t<decltype(out.token[i])>;
      const uint32_t unit = kRow == RowFormat::kQ8 ? channel / 2 : channel / 4;
      out.token[i] = size.has(channel) ? load_as<Codes>(values.codes(token) + unit) : Codes{};
    }
  }
  if constexpr (kRow != RowFormat::kBf16) out.scales.load(size, values, len);
}

template <class Head, RowFormat kRow>
__device__ void load_values(const Head& size, const PageRows<kRow, const uint16_t>& values, uint32_t len,
                            PageValues<kRow, Head::kDim>& out) {
#pragma unroll
  for (uint32_t p = 0; p < out.kParts; ++p) load_values_part(size, values, len, p, out.part[p]);
}

// --- decoding --------------------------------------------------------------------------------------------------------

__device__ inline uint32_t word_of(const uint4& v, uint32_t i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ inline uint32_t word_of(const uint2& v, uint32_t i) { return i == 0 ? v.x : v.y; }
__device__ inline uint32_t word_of(uint32_t v, uint32_t) { return v; }

// Where the four channels of MMA step `i` begin that a lane has of keys, and of queries.
template <RowFormat kRow>
__device__ uint32_t channel_of_step(uint32_t i) {
  const uint32_t c = threadIdx.x % 4;
  return kRow == RowFormat::kBf16 ? i / 2 * 32 + c * 8 + i % 2 * 4 : i / 4 * 64 + c * 16 + i % 4 * 4;
}

// The B operand of step `i` for tokens 8t + lane / 4.
template <class Head>
__device__ uint2 keys_of_step(const Head&, const PageKeys<RowFormat::kBf16, Head::kDim>& keys, uint32_t t, uint32_t i) {
  return make_uint2(word_of(keys.part[t][i / 2], i % 2 * 2), word_of(keys.part[t][i / 2], i % 2 * 2 + 1));
}
// The first and the third of four channels in 8 bits make a pair: so they need not be moved.
template <class Head>
__device__ uint2 keys_of_step(const Head& size, const PageKeys<RowFormat::kQ8, Head::kDim>& keys, uint32_t t,
                              uint32_t i) {
  const uint32_t lane = threadIdx.x % kWarp, token = t * 8 + lane / 4, channel = i / 4 * 64 + lane % 4 * 16;
  const uint32_t scales = scale_pair(size, keys.scales, token, token, channel);
  const uint32_t codes = word_of(keys.part[t][i / 4], i % 4), bias = bf16_bias();
  return make_uint2(decode_q8(codes, bias, scales), decode_q8(codes >> 8, bias, scales));
}

// --- MMAs ------------------------------------------------------------------------------------------------------------

// Registers of queries in shared memory as the MMA's A operand; step `i` multiplies the channels that keys_of_step has.
template <RowFormat kRow, uint32_t kDim>
__device__ void query_fragment(const float (*q)[kDim], uint32_t n_heads, uint32_t i, uint32_t (&out)[4]) {
  const uint32_t lane = threadIdx.x % kWarp, head = lane / 4;
  const float4 x = head < n_heads ? *reinterpret_cast<const float4*>(&q[head][channel_of_step<kRow>(i)])
                                  : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  constexpr bool kAdjacent = kRow == RowFormat::kBf16;
  out[0] = split_bf16(x.x, kAdjacent ? x.y : x.z, out[1]);
  out[2] = split_bf16(kAdjacent ? x.z : x.y, x.w, out[3]);
}

// Dot products of the query heads with a page's tokens: out[t][e] is token 8t + 2 (lane % 4) + e of head lane / 4.
template <class Head, RowFormat kRow, class F>
__device__ void page_dots(const Head& size, const PageKeys<kRow, Head::kDim>& keys, const F& fragment,
                          float (&out)[2][2]) {
  float c[2][4] = {};
#pragma unroll
  for (uint32_t i = 0; i < Head::kDim / 16; ++i) {
    uint32_t a[4];
    fragment(i, a);
#pragma unroll
    for (uint32_t t = 0; t < 2; ++t) {
      const uint2 b = keys_of_step(size, keys, t, i);
      mma_bf16(c[t], a, b.x, b.y);
    }
  }
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
    out[t][0] = c[t][0] + c[t][2];
    out[t][1] = c[t][1] + c[t][3];
  }
}

// The same for the page that takes tokens, of which quantised pages have rows in bf16 (KvView::open_page).
template <class Head, class F>
__device__ void open_page_dots(const Head& size, const uint16_t* keys, uint32_t len, const F& fragment,
                               float (&out)[2][2]) {
  const uint32_t lane = threadIdx.x % kWarp;
  float c[2][4] = {};
#pragma unroll 2
  for (uint32_t i = 0; i < Head::kDim / 16; ++i) {
    const uint32_t channel = channel_of_step<RowFormat::kQ8>(i);
    uint32_t a[4];
    fragment(i, a);
#pragma unroll
    for (uint32_t t = 0; t < 2; ++t) {
      const uint32_t token = t * 8 + lane / 4;
      const uint2 b =
          token < len && size.has(channel) ? load_as<uint2>(keys + token * size.dim() + channel) : make_uint2(0, 0);
      mma_bf16(c[t], a, __byte_perm(b.x, b.y, 0x5410), __byte_perm(b.x, b.y, 0x7632));
    }
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

// Sums of weighted values in bf16, as results of MMAs whose rows are heads: of head lane / 4, sum[8 p + j] has the
// channels 64 p + 16 (lane % 4) + j and that + 8. Its first two elements come from the leading bf16 parts of the
// weights, its last two (MMA rows 8..15) from the remainders.
template <RowFormat kRow, uint32_t kDim>
struct ValueSums {
  float sum[kDim / 8][4] = {};

  // Multiplies the sums of head lane / 4.
  __device__ void scale(float factor) {
#pragma unroll
    for (uint32_t j = 0; j < kDim / 8; ++j) {
#pragma unroll
      for (float& x : sum[j]) x *= factor;
    }
  }
  // Adds a page. `weight` is as page_dots has logits.
  template <class Head>
  __device__ void add(const Head&, const PageValues<kRow, kDim>& v, const float (&weight)[2][2]) {
    uint32_t a[4];
    split_weights(weight, a);
#pragma unroll
    for (uint32_t p = 0; p < v.kParts; ++p) add_part(v.part[p], a, p);
  }
  // The same with values that are loaded part by part, for heads whose values do not fit in registers beside the sums.
  template <class Head>
  __device__ void load_and_add(const Head& size, const PageRows<kRow, const uint16_t>& values, uint32_t len,
                               const float (&weight)[2][2]) {
    using Values = PageValues<kRow, kDim>;
    uint32_t a[4];
    split_weights(weight, a);
#pragma unroll
    for (uint32_t p = 0; p < Values::kParts; ++p) {
      typename Values::Part part;
      load_values_part<Head, kRow>(size, values, len, p, part);
      add_part(part, a, p);
    }
  }
  // store(head, channel, sum) for what the lane has.
  template <class Store>
  __device__ void for_each(const Store& store) const {
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (uint32_t i = 0; i < kDim / 8; ++i) {
      const uint32_t channel = i / 8 * 64 + lane % 4 * 16 + i % 8;
      store(lane / 4, channel, sum[i][0] + sum[i][2]);
      store(lane / 4, channel + 8, sum[i][1] + sum[i][3]);
    }
  }

 private:
  __device__ void add_part(const typename PageValues<kRow, kDim>::Part& part, const uint32_t (&a)[4], uint32_t p) {
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
      const uint32_t pick = j % 2 == 0 ? 0x5410u : 0x7632u;
      const uint32_t b0 = __byte_perm(word_of(part.token[0], j / 2), word_of(part.token[1], j / 2), pick);
      const uint32_t b1 = __byte_perm(word_of(part.token[2], j / 2), word_of(part.token[3], j / 2), pick);
      mma_bf16(sum[p * 8 + j], a, b0, b1);
    }
  }
};

// Sums of weighted quantised values, as results of MMAs whose rows are channels: so they take half as many registers,
// and leading parts and remainders of the weights add to the same sums. Of heads 2 (lane % 4) and the next one, sum[i]
// has channel_of(i) in its first two elements and the next channel in its last two.
template <RowFormat kRow, uint32_t kDim>
struct QuantisedSums {
  using Values = PageValues<kRow, kDim>;
  static constexpr uint32_t kEach = Values::kEach, kSums = kDim / 16;
  float sum[kSums][4] = {};

  __device__ void scale(float factor) {
    const uint32_t pair = threadIdx.x % 4 * 2;
    const float first = __shfl_sync(kAllLanes, factor, pair * 4), second = __shfl_sync(kAllLanes, factor, pair * 4 + 4);
#pragma unroll
    for (uint32_t i = 0; i < kSums; ++i)
      sum[i][0] *= first, sum[i][1] *= second, sum[i][2] *= first, sum[i][3] *= second;
  }
  template <class Head>
  __device__ void add(const Head& size, const Values& v, const float (&weight)[2][2]) {
    uint32_t a[4];
    split_weights(weight, a);
#pragma unroll
    for (uint32_t p = 0; p < v.kParts; ++p) add_part(size, v.part[p], a, p);
  }
  template <class Head>
  __device__ void load_and_add(const Head& size, const PageRows<kRow, const uint16_t>& values, uint32_t len,
                               const float (&weight)[2][2]) {
    uint32_t a[4];
    split_weights(weight, a);
#pragma unroll
    for (uint32_t p = 0; p < Values::kParts; ++p) {
      typename Values::Part part;
      load_values_part<Head, kRow>(size, values, len, p, part);
      add_part(size, part, a, p);
    }
  }
  // The same for the page that takes tokens, in bf16.
  template <class Head>
  __device__ void add_open_page(const Head& size, const uint16_t* values, uint32_t len, const float (&weight)[2][2]) {
    uint32_t w[4];
    split_weights(weight, w);
#pragma unroll
    for (uint32_t i = 0; i < kSums; ++i) {
      const uint32_t channel = channel_of(i);
      uint32_t pair[4], a[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t token = threadIdx.x % 4 * 2 + j % 2 + j / 2 * 8;
        pair[j] = token < len && size.has(channel) ? load_as<uint32_t>(values + token * size.dim() + channel) : 0;
      }
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j)
        a[j] = __byte_perm(pair[j / 2 * 2], pair[j / 2 * 2 + 1], j % 2 == 0 ? 0x5410 : 0x7632);
      mma_bf16(sum[i], a, w[0], w[2]);
      mma_bf16(sum[i], a, w[1], w[3]);
    }
  }
  template <class Store>
  __device__ void for_each(const Store& store) const {
    const uint32_t head = threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t i = 0; i < kSums; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) store(head + j % 2, channel_of(i) + j / 2, sum[i][j]);
    }
  }
  static __device__ uint32_t channel_of(uint32_t i) {
    return i / (kEach / 2) * (8 * kEach) + threadIdx.x % kWarp / 4 * kEach + i % (kEach / 2) * 2;
  }

 private:
  template <class Head>
  __device__ void add_part(const Head& size, const typename Values::Part& part, const uint32_t (&weight)[4],
                           uint32_t p) {
    const uint32_t lane = threadIdx.x % kWarp, token = lane % 4 * 2, channel = p * 8 * kEach + lane / 4 * kEach;
    const uint32_t scales[2] = {scale_pair(size, part.scales, token, token + 1, channel),
                                scale_pair(size, part.scales, token + 8, token + 9, channel)};
    const uint32_t bias = bf16_bias();
    // Half-words of two tokens in one word: two codes of 8 bits each, or four of 4.
    constexpr uint32_t kTogether = kRow == RowFormat::kQ8 ? 2 : 4, kBits = 16 / kTogether;
#pragma unroll
    for (uint32_t first = 0; first < kEach; first += kTogether) {
      const uint32_t half = first / kTogether, pick = half % 2 == 0 ? 0x5410u : 0x7632u;
      uint32_t codes[2];
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i)
        codes[i] = __byte_perm(word_of(part.token[2 * i], half / 2), word_of(part.token[2 * i + 1], half / 2), pick);
#pragma unroll
      for (uint32_t j = 0; j < kTogether; j += 2) {
        uint32_t a[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t code = codes[i / 2] >> (j + i % 2) * kBits;
          a[i] = kRow == RowFormat::kQ8 ? decode_q8(code, bias, scales[i / 2]) : decode_q4(code, bias, scales[i / 2]);
        }
        float(&to)[4] = sum[(p * kEach + first + j) / 2];
        mma_bf16(to, a, weight[0], weight[2]);
        mma_bf16(to, a, weight[1], weight[3]);
      }
    }
  }
};
template <uint32_t kDim>
struct ValueSums<RowFormat::kQ8, kDim> : QuantisedSums<RowFormat::kQ8, kDim> {};
template <uint32_t kDim>
struct ValueSums<RowFormat::kQ4, kDim> : QuantisedSums<RowFormat::kQ4, kDim> {};

#endif  // __CUDACC__

}  // namespace weir::cuda
