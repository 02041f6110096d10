// What rope_append does, for one warp inside the decode kernels: rotates one head, and appends a decode step's key and
// value to the open page, in the format of the session's pages.
#pragma once

#include "cuda/attn/head_size.cuh"
#include "cuda/pages/kv_rows.cuh"
#include "cuda/pages/page_digest.cuh"
#include "ops/rope_append.h"

namespace weir::cuda {

#ifdef __CUDACC__

// The two channels of a pair: pairs that rotate come first, then channels that pass through.
__device__ inline uint2 channels_of(const RopeAppendArgs& r, uint32_t pair) {
  const bool adjacent = r.layout == RopeLayout::kAdjacent || pair >= r.rope_dim / 2;
  return adjacent ? make_uint2(2 * pair, 2 * pair + 1) : make_uint2(pair, pair + r.rope_dim / 2);
}

// A lane's pairs of a head's channels: lane, lane + 32 and so on.
template <class Head>
struct LanePairs {
  static constexpr uint32_t kPairs = Head::kDim / 2 / kWarp;
  static __device__ uint32_t pair(uint32_t j) { return j * kWarp + threadIdx.x % kWarp; }
  // From `in` [head_dim]; zeros beyond the head's end.
  static __device__ void load(const Head& size, const RopeAppendArgs& r, const float* in, float2 (&out)[kPairs]) {
#pragma unroll
    for (uint32_t j = 0; j < kPairs; ++j) {
      const uint2 channel = channels_of(r, pair(j));
      out[j] = size.has(2 * pair(j)) ? make_float2(in[channel.x], in[channel.y]) : make_float2(0.0f, 0.0f);
    }
  }
};

// How a step rotates its heads, the same for all of them: known before their projections are.
template <class Head>
struct Turns : LanePairs<Head> {
  using LanePairs<Head>::kPairs, LanePairs<Head>::pair;
  float2 turn[kPairs], turn_sink[kPairs];

  __device__ explicit Turns(const RopeAppendArgs& r) {
#pragma unroll
    for (uint32_t j = 0; j < kPairs; ++j) {
      const bool rotates = pair(j) < r.rope_dim / 2;
      turn[j] = rotates ? reinterpret_cast<const float2*>(r.cos_sin)[pair(j)] : make_float2(1.0f, 0.0f);
      turn_sink[j] = rotates && r.cos_sin_sink != nullptr ? reinterpret_cast<const float2*>(r.cos_sin_sink)[pair(j)]
                                                          : make_float2(1.0f, 0.0f);
    }
  }
};

// One head in a warp's registers, on its way to being normalised and rotated. The loads of several heads come before
// the first store, so that they are in flight together.
template <class Head>
struct HeadInRegisters : LanePairs<Head> {
  using LanePairs<Head>::kPairs, LanePairs<Head>::pair, LanePairs<Head>::load;
  float2 x[kPairs];

  // To `out`, and with the sink rotation to `out_sink` unless that is null. `norm`: weights, if has_norm.
  __device__ void store(const Head& size, const RopeAppendArgs& r, const Turns<Head>& turns, bool has_norm,
                        const float2 (&norm)[kPairs], float* out, float* out_sink) {
    if (has_norm) {
      float sum = 0.0f;
#pragma unroll
      for (uint32_t j = 0; j < kPairs; ++j) sum += x[j].x * x[j].x;
#pragma unroll
      for (uint32_t j = 0; j < kPairs; ++j) sum += x[j].y * x[j].y;
      const float inverse = rsqrtf(warp_sum(sum) / static_cast<float>(size.dim()) + r.norm_eps);
#pragma unroll
      for (uint32_t j = 0; j < kPairs; ++j)
        x[j].x = x[j].x * inverse * norm[j].x, x[j].y = x[j].y * inverse * norm[j].y;
    }
#pragma unroll
    for (uint32_t j = 0; j < kPairs; ++j) {
      if (!size.has(2 * pair(j))) continue;
      const uint2 channel = channels_of(r, pair(j));
      const float2 t = turns.turn[j], sink = turns.turn_sink[j];
      out[channel.x] = x[j].x * t.x - x[j].y * t.y;
      out[channel.y] = x[j].x * t.y + x[j].y * t.x;
      if (out_sink == nullptr) continue;
      out_sink[channel.x] = x[j].x * sink.x - x[j].y * sink.y;
      out_sink[channel.y] = x[j].x * sink.y + x[j].y * sink.x;
    }
  }
};

// Where the step's key and value go, and the page's digest.
struct Place {
  uint32_t slot, in_page;
  uint32_t digest;  // KvView::digest_index
  uint16_t* open;   // where the page's rows are in bf16 if its format is another one and it takes more tokens, or null
};
// Computes the digest of the page that the step's key filled, by the warp that stored the key; each lane takes the
// channels whose new key it wrote itself. Called in one of 16 steps.
template <class Head, KvFormat kFormat>
__device__ __noinline__ void digest_filled_page(Head size, const KvView& kv, const Place& place) {
  const uint16_t* page = kv.pool + size_t{place.slot} * page_units<kFormat>(size.dim());
  uint16_t* digest = kv.digests + size_t{place.digest} * 2 * size.dim();
  for (uint32_t i = threadIdx.x % kWarp; i < size.dim(); i += kWarp)
    digest_channel(DigestKind::kCuboidMean, PageChannel(keys_at<kFormat>(page, size.dim()), i), size.dim(), i, digest);
}

// The step's key and value on their way to their page, by one warp: all loads, then the stores.
template <class Head, KvFormat kFormat>
struct NewToken {
  static constexpr uint32_t kEach = Head::kDim / kWarp, kPairs = LanePairs<Head>::kPairs;
  float v[kEach];
  uint16_t high[kEach], low[kEach];  // of a kMinMax digest
  HeadInRegisters<Head> key;
  float2 norm[kPairs];

  __device__ void load(const Head& size, const RopeAppendArgs& r, const KvView& kv, uint32_t kv_head,
                       const Place& place) {
    const uint32_t d = size.dim(), lane = threadIdx.x % kWarp;
    const uint16_t* digest = digest_of(size, kv, place);
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      const uint32_t i = j * kWarp + lane;
      if (!size.has(i)) continue;
      v[j] = r.v[size_t{kv_head} * d + i];
      high[j] = digest != nullptr ? digest[i] : 0;
      low[j] = digest != nullptr ? digest[d + i] : 0;
    }
    key.load(size, r, r.k + size_t{kv_head} * d, key.x);
    if (r.k_norm != nullptr) key.load(size, r, r.k_norm, norm);
  }

  // Stores both in their page and updates the page's digest (append_keeps_digest). key_row [head_dim] is shared memory
  // for the rotated key.
  __device__ void store(const Head& size, const RopeAppendArgs& r, const Turns<Head>& turns, const KvView& kv,
                        const Place& place, float* key_row) {
    const uint32_t d = size.dim(), lane = threadIdx.x % kWarp;
    uint16_t* digest = digest_of(size, kv, place);
    key.store(size, r, turns, r.k_norm != nullptr, norm, key_row, nullptr);
    __syncwarp();
    if constexpr (rotates_values(kFormat)) rotate_row(v, d);
#pragma unroll
    for (uint32_t j = 0; j < kEach; ++j) {
      const uint32_t i = j * kWarp + lane;
      if (!size.has(i)) continue;
      const uint16_t rounded = store_elements(kv, place, d, j, key_row[i], v[j]);
      if (digest == nullptr) continue;
      if (place.in_page == 0 || bf16_to_float(rounded) > bf16_to_float(high[j])) digest[i] = rounded;
      if (place.in_page == 0 || bf16_to_float(rounded) < bf16_to_float(low[j])) digest[d + i] = rounded;
    }
    if constexpr (kFormat != KvFormat::kBf16) __syncwarp();  // other lanes read what this one has stored
    if (kv.digest == DigestKind::kCuboidMean && place.in_page + 1 == kPageTokens)
      digest_filled_page<Head, kFormat>(size, kv, place);
  }

 private:
  // Stores elements 32 j to 32 j + 31 of the key and the value. Returns what digests take for the lane's key.
  static __device__ uint16_t store_elements(const KvView& kv, const Place& place, uint32_t d, uint32_t j, float key,
                                            float value) {
    uint16_t* page = kv.pool + size_t{place.slot} * page_units<kFormat>(d);
    if constexpr (kFormat == KvFormat::kBf16) {
      const uint32_t i = j * kWarp + threadIdx.x % kWarp;
      uint16_t* keys = page + size_t{place.in_page} * d;
      const uint16_t rounded = float_to_bf16(key);
      keys[i] = rounded;
      keys[kPageTokens * d + i] = float_to_bf16(value);
      return rounded;
    } else {
      const float stored = store_block(keys_at<kFormat>(page, d), place.in_page, j, key);
      store_block(values_at<kFormat>(page, d), place.in_page, j, value);
      if (place.open != nullptr) {
        uint16_t* row = place.open + size_t{place.in_page} * d + j * kWarp + threadIdx.x % kWarp;
        row[0] = float_to_bf16(key);
        row[kPageTokens * d] = float_to_bf16(value);
      }
      return float_to_bf16(stored);
    }
  }

  // The digest of the place's page where it changes with every key; null: digests are of another kind.
  static __device__ uint16_t* digest_of(const Head& size, const KvView& kv, const Place& place) {
    return kv.digest == DigestKind::kMinMax ? kv.digests + size_t{place.digest} * 2 * size.dim() : nullptr;
  }
};

#endif  // __CUDACC__

}  // namespace weir::cuda
