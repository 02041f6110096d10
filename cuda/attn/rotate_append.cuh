// What rope_append does, for one warp inside the decode kernels: rotates one head, and appends a decode step's key and
// value to the open page.
#pragma once

#include "cuda/attn/head_size.cuh"
#include "cuda/pages/page_digest.cuh"

namespace weir::cuda {

#ifdef __CUDACC__

// Normalises and rotates one head, by one warp: from `in` to `out`, and with the sink rotation to `out_sink`.
template <class Head>
__device__ void rotate(const Head& size, const RopeAppendArgs& r, const float* in, const float* norm, float* out,
                       float* out_sink) {
  const uint32_t lane = threadIdx.x % kWarp, half = r.rope_dim / 2;
  float inverse = 1.0f;
  if (norm != nullptr) {
    float sum = 0.0f;
    for (uint32_t i = lane; i < size.dim(); i += kWarp) sum += in[i] * in[i];
    inverse = rsqrtf(warp_sum(sum) / static_cast<float>(size.dim()) + r.norm_eps);
  }
  const auto value = [&](uint32_t i) { return norm != nullptr ? in[i] * inverse * norm[i] : in[i]; };
  // All loads come before the first store, so that they are in flight together.
  constexpr uint32_t kPairs = Head::kDim / 2 / kWarp;
  float x[kPairs], y[kPairs];
  float2 turn[kPairs], turn_sink[kPairs];
#pragma unroll
  for (uint32_t j = 0; j < kPairs; ++j) {
    const uint32_t i = j * kWarp + lane;
    if (i >= half) continue;
    x[j] = value(r.layout == RopeLayout::kAdjacent ? 2 * i : i);
    y[j] = value(r.layout == RopeLayout::kAdjacent ? 2 * i + 1 : i + half);
    turn[j] = reinterpret_cast<const float2*>(r.cos_sin)[i];
    if (out_sink != nullptr) turn_sink[j] = reinterpret_cast<const float2*>(r.cos_sin_sink)[i];
  }
#pragma unroll
  for (uint32_t j = 0; j < kPairs; ++j) {
    const uint32_t i = j * kWarp + lane;
    if (i >= half) continue;
    const uint32_t first = r.layout == RopeLayout::kAdjacent ? 2 * i : i;
    const uint32_t second = r.layout == RopeLayout::kAdjacent ? 2 * i + 1 : i + half;
    out[first] = x[j] * turn[j].x - y[j] * turn[j].y;
    out[second] = x[j] * turn[j].y + y[j] * turn[j].x;
    if (out_sink == nullptr) continue;
    out_sink[first] = x[j] * turn_sink[j].x - y[j] * turn_sink[j].y;
    out_sink[second] = x[j] * turn_sink[j].y + y[j] * turn_sink[j].x;
  }
  for (uint32_t i = r.rope_dim + lane; i < size.dim(); i += kWarp) {
    out[i] = value(i);
    if (out_sink != nullptr) out_sink[i] = out[i];
  }
}

// Where the step's key and value go.
struct Place {
  uint32_t slot, in_page;
};
// Computes the digest of the page that the step's key filled, by the warp that stored the key; each lane takes the
// channels whose new key it wrote itself. Called in one of 16 steps.
template <class Head>
__device__ __noinline__ void digest_filled_page(Head size, const KvView& kv, uint32_t slot) {
  const uint16_t* keys = kv.pool + size_t{slot} * (2 * kPageTokens * size.dim());
  uint16_t* digest = kv.digests + size_t{slot} * 2 * size.dim();
  for (uint32_t i = threadIdx.x % kWarp; i < size.dim(); i += kWarp)
    digest_channel(DigestKind::kCuboidMean, PageChannel(keys, size.dim(), i), size.dim(), i, digest);
}

// Stores the step's key and value in their page and updates the page's digest (append_keeps_digest), by one warp.
// key_row [head_dim] is shared memory for the rotated key.
template <class Head>
__device__ void append_token(const Head& size, const RopeAppendArgs& r, const KvView& kv, uint32_t kv_head,
                             const Place& place, float* key_row) {
  const uint32_t d = size.dim();
  uint16_t* keys = kv.pool + size_t{place.slot} * (2 * kPageTokens * d) + size_t{place.in_page} * d;
  uint16_t* digest = kv.digest == DigestKind::kMinMax ? kv.digests + size_t{place.slot} * 2 * d : nullptr;
  // The loads first, as in rotate().
  constexpr uint32_t kEach = Head::kDim / kWarp;
  const uint32_t lane = threadIdx.x % kWarp;
  float v[kEach];
  uint16_t high[kEach], low[kEach];
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    const uint32_t i = j * kWarp + lane;
    if (!size.has(i)) continue;
    v[j] = r.v[size_t{kv_head} * d + i];
    high[j] = digest != nullptr ? digest[i] : 0;
    low[j] = digest != nullptr ? digest[d + i] : 0;
  }
  rotate(size, r, r.k + size_t{kv_head} * d, r.k_norm, key_row, nullptr);
  __syncwarp();
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    const uint32_t i = j * kWarp + lane;
    if (!size.has(i)) continue;
    const uint16_t key = float_to_bf16(key_row[i]);
    keys[i] = key;
    keys[kPageTokens * d + i] = float_to_bf16(v[j]);
    if (digest == nullptr) continue;
    if (place.in_page == 0 || bf16_to_float(key) > bf16_to_float(high[j])) digest[i] = key;
    if (place.in_page == 0 || bf16_to_float(key) < bf16_to_float(low[j])) digest[d + i] = key;
  }
  if (kv.digest == DigestKind::kCuboidMean && place.in_page + 1 == kPageTokens)
    digest_filled_page(size, kv, place.slot);
}

#endif  // __CUDACC__

}  // namespace weir::cuda
