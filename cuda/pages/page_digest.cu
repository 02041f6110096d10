// Computes: page_digest, statistics of the keys of full pages. Launch: (rows, KV heads), a thread per channel. Numerics: as the reference, bit for bit:
// its sums run over the tokens of a page in order, and those of the sphere's distances over the channels. Traffic: the keys of the pages once.
// Papers: as lib/ops/page_digest_ref.cpp.
#include "cuda/common/base.cuh"
#include "cuda/ops.h"
#include "quant/half.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;  // channels of most models

// Statistics of one channel of a page.
struct Channel {
  float key[kPageTokens];
  float high, low, mean;

  __device__ Channel(const uint16_t* keys, uint32_t d, uint32_t i) {
#pragma unroll
    for (uint32_t t = 0; t < kPageTokens; ++t) key[t] = bf16_to_float(keys[t * d + i]);
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

__device__ void digest_channel(DigestKind kind, const Channel& c, uint32_t d, uint32_t i, uint16_t* out) {
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
      break;
  }
}

__global__ void __launch_bounds__(kBlock) page_digest_kernel(const PageDigestArgs a) {
  __shared__ float distance[kPageTokens];
  start_next();
  wait_for_previous();
  const uint32_t kv_head = blockIdx.y, row = a.first_row[kv_head] + blockIdx.x, d = a.kv.head_dim;
  if (row >= a.kv.n_pages[kv_head] || a.kv.len[size_t{kv_head} * a.kv.capacity + row] < kPageTokens) return;
  const size_t slot = a.kv.slots[size_t{kv_head} * a.kv.capacity + row];
  const bool sphere = a.kv.digest == DigestKind::kSphereMean;
  const size_t halves = a.kv.digest == DigestKind::kCentroid || sphere ? 1 : 2;
  const uint16_t* keys = a.kv.pool + slot * 2 * kPageTokens * d;
  uint16_t* out = a.kv.digests + slot * (halves * d + (sphere ? 2 : 0));
  for (uint32_t i = threadIdx.x; i < d; i += kBlock) digest_channel(a.kv.digest, Channel(keys, d, i), d, i, out);
  if (!sphere) return;
  __syncthreads();
  // The mean distance of the keys from the centre as it is stored.
  if (threadIdx.x < kPageTokens) {
    float square = 0.0f;
    for (uint32_t i = 0; i < d; ++i) {
      const float away = bf16_to_float(keys[threadIdx.x * d + i]) - bf16_to_float(out[i]);
      square = __fadd_rn(square, __fmul_rn(away, away));
    }
    distance[threadIdx.x] = sqrtf(square);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0.0f;
  for (uint32_t t = 0; t < kPageTokens; ++t) sum += distance[t];
  out[d] = f32_to_bf16(sum / static_cast<float>(kPageTokens));
  out[d + 1] = 0;
}

}  // namespace

Status page_digest(OpContext& cx, const PageDigestArgs& a) {
  if (a.n_rows == 0) return {};
  return launch("page_digest", page_digest_kernel, dim3(a.n_rows, a.kv.n_kv_heads), kBlock, 0, stream_of(cx), true, a);
}

}  // namespace weir::cuda
