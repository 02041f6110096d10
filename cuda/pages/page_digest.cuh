// The digest of a full page, channel by channel: for a kernel of its own (page_digest.cu), and for a decode step that
// fills a page.
#pragma once

#include "cuda/common/base.cuh"
#include "cuda/pages/kv_rows.cuh"
#include "quant/half.h"

namespace weir::cuda {

// Digests that appending in a decode step keeps up to date: kMinMax with every key, kCuboidMean when a page is full.
constexpr bool append_keeps_digest(DigestKind kind) {
  return kind == DigestKind::kNone || kind == DigestKind::kMinMax || kind == DigestKind::kCuboidMean;
}

#ifdef __CUDACC__

// Statistics of one channel of a page.
struct PageChannel {
  float key[kPageTokens];
  float high, low, mean;

  template <RowFormat kRow>
  __device__ PageChannel(const PageRows<kRow, const uint16_t>& keys, uint32_t i) {
#pragma unroll
    for (uint32_t t = 0; t < kPageTokens; ++t) key[t] = keys.at(t, i);
    high = low = key[0];
    float sum = 0.0f;
#pragma unroll
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      high = high < key[t] ? key[t] : high;
      low = key[t] < low ? key[t] : low;
      sum += key[t];
    }
    mean = sum / static_cast<float>(kPageTokens);
  }
  __device__ float middle() const { return (high + low) / 2.0f; }
  __device__ float mean_distance(float from) const {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t t = 0; t < kPageTokens; ++t) sum += fabsf(key[t] - from);
    return sum / static_cast<float>(kPageTokens);
  }
  __device__ float deviation() const {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t t = 0; t < kPageTokens; ++t) {
      const float away = key[t] - mean;
      sum = __fadd_rn(sum, __fmul_rn(away, away));
    }
    return sqrtf(sum / static_cast<float>(kPageTokens));
  }
};

__device__ inline void digest_channel(DigestKind kind, const PageChannel& c, uint32_t d, uint32_t i, uint16_t* out) {
  switch (kind) {
    case DigestKind::kMinMax:
      out[i] = f32_to_bf16(c.high);
      out[d + i] = f32_to_bf16(c.low);
      break;
    case DigestKind::kCuboidMean: {
      const float r = c.mean_distance(c.middle());
      out[i] = f32_to_bf16(c.middle() + r);
      out[d + i] = f32_to_bf16(c.middle() - r);
      break;
    }
    case DigestKind::kSphereMean:
      out[i] = f32_to_bf16(c.middle());
      break;
    case DigestKind::kCentroid:
      out[i] = f32_to_bf16(c.mean);
      break;
    case DigestKind::kMeanStd:
      out[i] = f32_to_bf16(c.mean);
      out[d + i] = f32_to_bf16(c.deviation());
      break;
    case DigestKind::kNone:
    case DigestKind::kSketch:  // page_sketch.cuh
      break;
  }
}

#endif  // __CUDACC__

}  // namespace weir::cuda
