// Estimates in sparse_layer.cu from digests that are boxes around keys (kMinMax, kCuboidMean): q.k is at most the sum
// over the channels of the larger product with the box's sides. On tensor cores, exact but for the order of the sums.
#pragma once

#include "cuda/attn/sparse_layer_work.cuh"

namespace weir::cuda::sparse {

template <uint32_t kDim>
struct Boxes;  // the host names kernels by it

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The digests of a warp's tile: of rows lane / 4 and lane / 4 + 8, with channels in the order of the MMA's B operand.
template <uint32_t kDim>
struct Boxes {
  static constexpr uint32_t kVectors = 2 * kDim / 8 / 4;  // 16-byte vectors per lane and row
  uint32_t own = threadIdx.x / kWarp * kTileRows;         // the block's own row
  uint32_t at[2];                                         // indices of the lane's digests
  uint4 digest[2][kVectors];

  // Loading takes two steps, so that other reads can be in flight with each.
  __device__ explicit Boxes(const Work<kDim>& w) { find(w); }
  // The digest of the last row may be written at this moment. Its estimate is not used, but must not depend on a race,
  // so zeros are loaded instead.
  __device__ void load(const Work<kDim>& w) {
    const uint32_t lane = threadIdx.x % kWarp;
    const auto* digests = reinterpret_cast<const uint4*>(w.k.attn.kv.digests);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const bool is_read = w.row(own) + 8 * i + lane / 4 + 1 < w.n;
      const uint4* from = digests + size_t{at[i]} * (2 * kDim / 8) + lane % 4;
#pragma unroll
      for (uint32_t v = 0; v < kVectors; ++v) digest[i][v] = is_read ? from[4 * v] : uint4{};
    }
  }

  // Stores a rotated channel in shared memory as three bf16 that together are exact. Positive channels (to be
  // multiplied with the maxima) and negative ones (with the minima) are stored apart; row 4s + g of a tile is part s of
  // head g.
  __device__ static void store_query(Shared<kDim>& s, uint32_t head, uint32_t channel, float x) {
    auto* tile = s.estimates.boxes.parts[head / kSplitHeads] + head % kSplitHeads;
    float rest = x;
#pragma unroll
    for (uint32_t part = 0; part < 3; ++part) {
      const uint16_t rounded = float_to_bf16(rest);
      rest -= bf16_to_float(rounded);
      tile[kSplitHeads * part][channel] = x > 0.0f ? rounded : 0;
      tile[kSplitHeads * part][kDim + channel] = x > 0.0f ? 0 : rounded;
    }
  }
  __device__ static void prepare_queries(const Work<kDim>&) {}

  // Estimates of all rows of the warp.
  __device__ void score_rows(const Work<kDim>& w) {
    while (own < w.n_own) {
      score_tile(w);
      own += kWarps * kTileRows;
      if (own >= w.n_own) break;
      find(w);
      load(w);
    }
  }

 private:
  __device__ void find(const Work<kDim>& w) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t row = w.row(own) + 8 * i + threadIdx.x % kWarp / 4;
      at[i] = w.digest_index(min(row, w.n - 1));
    }
  }

  __device__ void score_tile(const Work<kDim>& w) const {
    constexpr uint32_t kQueryVectors = BoxQueries<kDim>::kStride / 8;
    const uint32_t lane = threadIdx.x % kWarp;
    for (uint32_t first_head = 0; first_head < w.group; first_head += kSplitHeads) {
      // Even and odd steps have sums of their own, so that an MMA does not wait for the one before it.
      float sum[2][2][4] = {};
      const uint4* low = reinterpret_cast<const uint4*>(w.s.estimates.boxes.parts[first_head / kSplitHeads]) +
                         lane / 4 * kQueryVectors + lane % 4;
#pragma unroll
      for (uint32_t v = 0; v < kVectors; ++v) {
        const uint4 q0 = low[4 * v], q8 = low[4 * v + 8 * kQueryVectors];
        const uint32_t even[4] = {q0.x, q8.x, q0.y, q8.y}, odd[4] = {q0.z, q8.z, q0.w, q8.w};
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
          mma_bf16(sum[i][0], even, digest[i][v].x, digest[i][v].y);
          mma_bf16(sum[i][1], odd, digest[i][v].z, digest[i][v].w);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
#pragma unroll
        for (uint32_t column = 0; column < 2; ++column) {
          const float high = sum[i][0][column] + sum[i][1][column],
                      least = sum[i][0][column + 2] + sum[i][1][column + 2];
          const float score = high + (__shfl_down_sync(kAllLanes, high, 16) + least);
          const uint32_t head = first_head + lane / 4;
          if (lane < 16 && head < w.group) w.score[head * w.own_stride + own + 8 * i + lane % 4 * 2 + column] = score;
        }
      }
    }
  }
};

#endif

}  // namespace weir::cuda::sparse
