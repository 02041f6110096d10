// Attention over pages in sparse_layer.cu: one warp per page with an online softmax, then the sum over the block's
// warps and the merge over the cluster's blocks.
#pragma once

#include "cuda/attn/sparse_layer_scores.cuh"

namespace weir::cuda::sparse {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Starts the asynchronous copy of a page's values to shared memory, by one warp; zeros for tokens that the page does
// not have.
template <uint32_t kDim>
__device__ void fetch_values(const uint16_t* page, uint32_t len, uint4* to) {
  const uint32_t lane = threadIdx.x % kWarp;
  const auto* values = reinterpret_cast<const uint4*>(page + kPageTokens * kDim);
#pragma unroll
  for (uint32_t i = lane; i < kPageTokens * kDim / 8; i += kWarp) {
    const uint32_t token = i / (kDim / 8), piece = i % (kDim / 8);
    copy_16_async(shared_address(to + value_piece<kDim>(token, piece)), values + i, token < len);
  }
  commit_copies();
}

// acc += values^T * weights for heads 2 (lane % 4) and the next one: acc[i] has channels 16 i + lane / 4 and that + 8,
// each for both heads.
template <uint32_t kDim>
__device__ void add_shared_values(const uint4* values, const float (&weight)[2][2], float (&acc)[kDim / 16][4]) {
  const uint32_t lane = threadIdx.x % kWarp, token = lane % 8 + lane / 16 * 8;
  uint32_t rest0, rest1;
  const uint32_t weight0 = split_bf16(weight[0][0], weight[0][1], rest0),
                 weight1 = split_bf16(weight[1][0], weight[1][1], rest1);
#pragma unroll
  for (uint32_t i = 0; i < kDim / 16; ++i) {
    uint32_t a[4];
    load_matrices_transposed(a, shared_address(values + value_piece<kDim>(token, 2 * i + lane / 8 % 2)));
    multiply_bf16(acc[i], a, weight0, weight1);
    multiply_bf16(acc[i], a, rest0, rest1);
  }
}

// What a warp has attended. The running softmax and the logits of a page belong to head lane / 4, sums of values to the
// heads lane % 4 * 2 and the next one.
template <uint32_t kDim>
struct WarpSums {
  Running softmax;
  float acc[kDim / 16][4] = {};

  // Multiplies the sums with factors that the lanes hold in the layout of the logits.
  __device__ void scale(float factor) {
    const uint32_t pair = threadIdx.x % 4 * 2;
    const float first = __shfl_sync(kAllLanes, factor, pair * 4), second = __shfl_sync(kAllLanes, factor, pair * 4 + 4);
#pragma unroll
    for (uint32_t i = 0; i < kDim / 16; ++i)
      acc[i][0] *= first, acc[i][1] *= second, acc[i][2] *= first, acc[i][3] *= second;
  }
};

// Loads a page, `word` of Work::pages, and computes its logits (base 2) for head lane / 4: of tokens t * 8 + lane % 4 *
// 2 + e. The values are on their way to s.values[warp] afterwards.
template <uint32_t kDim>
__device__ void begin_page(const Work<kDim>& w, uint32_t word, float (&logit)[2][2]) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, head = lane / 4;
  const float scale = w.k.attn.scale * kLog2E;
  const auto* query = reinterpret_cast<const uint4*>(w.s.query[0][head]) + lane % 4;
  const auto* rest = reinterpret_cast<const uint4*>(w.s.query[1][head]) + lane % 4;
  const auto fragment = [&](uint32_t i, uint32_t(&out)[4]) {
    const uint4 q = query[i / 2 * 4], r = rest[i / 2 * 4];
    const bool odd = i % 2 != 0;
    out[0] = odd ? q.z : q.x, out[1] = odd ? r.z : r.x, out[2] = odd ? q.w : q.y, out[3] = odd ? r.w : r.y;
  };
  const uint32_t slot = word & ((1u << kLengthShift) - 1), len = (word >> kLengthShift) + 1;
  const uint16_t* page = w.k.attn.kv.pool + size_t{slot} * (2 * kPageTokens * kDim);
  const FixedHead<kDim> size(kDim);
  PageKeys<RowFormat::kBf16, kDim> keys;
  load_keys(size, keys_at<KvFormat::kBf16>(page, kDim), len, keys);
  __syncwarp();  // the values of the last page have been read
  fetch_values<kDim>(page, len, w.s.values[warp]);
  page_dots(size, keys, fragment, logit);
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) logit[t][e] = t * 8 + lane % 4 * 2 + e < len ? logit[t][e] * scale : kUnseen;
  }
}

// Rescales the warps' results to a common maximum, and leaves them in s.o, s.l and s.high.
template <uint32_t kDim>
__device__ void settle(const Work<kDim>& w, WarpSums<kDim>& sums) {
  Shared<kDim>& s = w.s;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, head = lane / 4, pair = lane % 4 * 2;
  if (lane % 4 == 0) s.m[head][warp] = sums.softmax.m;
  __syncthreads();
  float m[kWarps];
#pragma unroll
  for (uint32_t i = 0; i < kWarps; i += 4)
    *reinterpret_cast<float4*>(m + i) = *reinterpret_cast<float4*>(&s.m[head][i]);
  float high = m[0];
#pragma unroll
  for (uint32_t i = 1; i < kWarps; ++i) high = fmaxf(high, m[i]);
  const float share = sums.softmax.m == kUnseen ? 0.0f : exp2f(sums.softmax.m - high);
  if (lane % 4 == 0) s.l[head][warp] = share * sums.softmax.l;
  if (lane % 4 == 0 && warp == 0) s.high[head] = high;
  sums.scale(share);
  if (pair >= w.group) return;
#pragma unroll
  for (uint32_t i = 0; i < kDim / 8; ++i) {
    auto* out = reinterpret_cast<float2*>(&s.o[warp][8 * i + lane / 4][pair]);
    *out = make_float2(sums.acc[i / 2][i % 2 * 2], sums.acc[i / 2][i % 2 * 2 + 1]);
  }
}

// Attends the block's pages, one warp per page, and leaves the results in s.o, s.l and s.high.
template <uint32_t kDim>
__device__ void attend(const Work<kDim>& w, uint32_t n_pages) {
  const uint32_t warp = threadIdx.x / kWarp;
  WarpSums<kDim> sums;
#pragma unroll 1
  for (uint32_t i = warp; i < n_pages; i += kWarps) {
    float weight[2][2];
    begin_page(w, w.list[i], weight);
    (void)fold_page(weight, sums.softmax, [&](float factor) { sums.scale(factor); });
    wait_copies<0>();
    __syncwarp();
    add_shared_values<kDim>(w.s.values[warp], weight, sums.acc);
  }
  settle(w, sums);
}

// Sums the warps' results and sends them to the blocks that merge them: each merges an equal share of the output
// elements.
template <uint32_t kDim>
__device__ void push_parts(const Work<kDim>& w) {
  const Shared<kDim>& s = w.s;
  const uint32_t each = w.share();
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < kDim << w.group_shift; i += kThreads) {
    const uint32_t channel = i >> w.group_shift, head = i - (channel << w.group_shift);
    float out = 0.0f;
#pragma unroll
    for (uint32_t warp = 0; warp < kWarps; ++warp) out += s.o[warp][channel][head];
    *shared_of(&w.s.part[w.rank][i % each], i / each) = out;
  }
  if (threadIdx.x >= w.group * w.n_blocks) return;
  const uint32_t head = threadIdx.x / w.n_blocks;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t warp = 0; warp < kWarps; ++warp) sum += s.l[head][warp];
  *shared_of(&w.s.part_ml[head][w.rank], threadIdx.x % w.n_blocks) = make_float2(s.high[head], sum);
}

// Merges the block's share of the output.
template <uint32_t kDim>
__device__ void merge_parts(const Work<kDim>& w) {
  const Shared<kDim>& s = w.s;
  for (uint32_t i = threadIdx.x; i < w.share(); i += kThreads) {
    const uint32_t at = w.rank * w.share() + i, channel = at >> w.group_shift, head = at - (channel << w.group_shift);
    if (channel >= kDim || head >= w.group) continue;
    // The head's sink is a partial result without values.
    const float* sinks = w.k.attn.sinks;
    const float sink = sinks != nullptr ? sinks[w.kv_head * w.group + head] * kLog2E : kUnseen;
    float high = sink, sum = 0.0f, out = 0.0f;
#pragma unroll 4
    for (uint32_t from = 0; from < w.n_blocks; ++from) high = fmaxf(high, s.part_ml[head][from].x);
#pragma unroll 4
    for (uint32_t from = 0; from < w.n_blocks; ++from) {
      const float2 ml = s.part_ml[head][from];
      const float share = ml.x == kUnseen ? 0.0f : exp2f(ml.x - high);
      sum += share * ml.y;
      out += share * s.part[from][i];
    }
    if (sink != kUnseen) sum += exp2f(sink - high);
    w.k.attn.out[(size_t{w.kv_head} * w.group + head) * kDim + channel] = sum == 0.0f ? 0.0f : __fdividef(out, sum);
  }
}

#endif

}  // namespace weir::cuda::sparse
