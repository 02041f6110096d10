// Attention over pages in sparse_layer.cu: one warp per page with an online softmax, then the sum over the block's
// warps and the merge over the cluster's blocks.
#pragma once

#include "cuda/attn/sparse_layer_work.cuh"

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
// heads lane % 4 * 2 and the next one. Values in bf16 come through shared memory; quantised ones are decoded from
// registers, in which they take half the room or less.
template <uint32_t kDim, KvFormat kFormat>
struct WarpSums {
  using Page = PageValues<value_format(kFormat), kDim>;  // the values of the page that was begun
  Running softmax;
  Page page;
  const uint16_t* open;  // its values in bf16 if it takes tokens, or null
  uint32_t len;
  ValueSums<value_format(kFormat), kDim> acc;

  __device__ void scale(float factor) { acc.scale(factor); }
  __device__ void add(const Work<kDim>&, const float (&weight)[2][2]) {
    const FixedHead<kDim> size(kDim);
    if (open == nullptr) {
      acc.add(size, page, weight);
    } else {
      acc.add_open_page(size, open, len, weight);
    }
  }
  template <class Store>
  __device__ void for_each(const Store& store) const {
    acc.for_each(store);
  }
};
template <uint32_t kDim>
struct WarpSums<kDim, KvFormat::kBf16> {
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
  __device__ void add(const Work<kDim>& w, const float (&weight)[2][2]) {
    add_shared_values<kDim>(w.s.values[threadIdx.x / kWarp], weight, acc);
  }
};

// Loads the keys of a page in bf16 and computes its products; its values are on their way to s.values[warp] afterwards.
template <uint32_t kDim>
__device__ void begin_bf16_page(const Work<kDim>& w, uint32_t slot, uint32_t len, float (&dot)[2][2]) {
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, head = lane / 4;
  const auto* query = reinterpret_cast<const uint4*>(w.s.query[0][head]) + lane % 4;
  const auto* rest = reinterpret_cast<const uint4*>(w.s.query[1][head]) + lane % 4;
  const auto fragment = [&](uint32_t i, uint32_t(&out)[4]) {
    const uint4 q = query[i / 2 * 4], r = rest[i / 2 * 4];
    const bool odd = i % 2 != 0;
    out[0] = odd ? q.z : q.x, out[1] = odd ? r.z : r.x, out[2] = odd ? q.w : q.y, out[3] = odd ? r.w : r.y;
  };
  const uint16_t* page = w.k.attn.kv.pool + size_t{slot} * (2 * kPageTokens * kDim);
  const FixedHead<kDim> size(kDim);
  PageKeys<RowFormat::kBf16, kDim> keys;
  load_keys(size, keys_at<KvFormat::kBf16>(page, kDim), len, keys);
  __syncwarp();  // the values of the last page have been read
  fetch_values<kDim>(page, len, w.s.values[warp]);
  page_dots(size, keys, fragment, dot);
}

// The same of a quantised page, whose values are on their way to registers of `sums`.
template <uint32_t kDim, KvFormat kFormat>
__device__ void begin_quantised_page(const Work<kDim>& w, uint32_t slot, uint32_t len, WarpSums<kDim, kFormat>& sums,
                                     float (&dot)[2][2]) {
  const uint32_t head = threadIdx.x % kWarp / 4;
  const auto fragment = [&](uint32_t i, uint32_t(&out)[4]) {
    const uint32_t channel = channel_of_step<RowFormat::kQ8>(i);
    const auto q = load_as<uint2>(&w.s.query[0][head][channel]), r = load_as<uint2>(&w.s.query[1][head][channel]);
    out[0] = __byte_perm(q.x, q.y, 0x5410), out[1] = __byte_perm(r.x, r.y, 0x5410);
    out[2] = __byte_perm(q.x, q.y, 0x7632), out[3] = __byte_perm(r.x, r.y, 0x7632);
  };
  const KvView& kv = w.k.attn.kv;
  const FixedHead<kDim> size(kDim);
  sums.len = len;
  sums.open = nullptr;
  // Only the page that takes tokens has fewer.
  if (len < kPageTokens && kv.open != nullptr) {
    const uint16_t* open = kv.open_page(w.kv_head, w.k.rope.append_row[w.kv_head]);
    sums.open = open + kPageTokens * kDim;
    open_page_dots(size, open, len, fragment, dot);
    return;
  }
  const uint16_t* page = kv.pool + size_t{slot} * page_units<kFormat>(kDim);
  PageKeys<key_format(kFormat), kDim> keys;
  load_keys(size, keys_at<kFormat>(page, kDim), len, keys);
  load_values(size, values_at<kFormat>(page, kDim), len, sums.page);
  page_dots(size, keys, fragment, dot);
}

// Begins a page, `word` of Work::pages, and computes its logits (base 2) for head lane / 4: of tokens t * 8 + lane %
// 4 * 2 + e.
template <uint32_t kDim, KvFormat kFormat>
__device__ void begin_page(const Work<kDim>& w, uint32_t word, WarpSums<kDim, kFormat>& sums, float (&logit)[2][2]) {
  const uint32_t lane = threadIdx.x % kWarp;
  const float scale = w.k.attn.scale * kLog2E;
  const uint32_t slot = word & ((1u << kLengthShift) - 1), len = (word >> kLengthShift) + 1;
  if constexpr (kFormat == KvFormat::kBf16) {
    begin_bf16_page(w, slot, len, logit);
  } else {
    begin_quantised_page(w, slot, len, sums, logit);
  }
#pragma unroll
  for (uint32_t t = 0; t < 2; ++t) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) logit[t][e] = t * 8 + lane % 4 * 2 + e < len ? logit[t][e] * scale : kUnseen;
  }
}

// Waits for the values of the page that was begun.
template <KvFormat kFormat>
__device__ void wait_for_values() {
  if constexpr (kFormat == KvFormat::kBf16) wait_copies<0>();
  __syncwarp();
}

// Rescales the warps' results to a common maximum, and leaves them in s.o, s.l and s.high.
template <uint32_t kDim, KvFormat kFormat>
__device__ void settle(const Work<kDim>& w, WarpSums<kDim, kFormat>& sums) {
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
  if constexpr (kFormat == KvFormat::kBf16) {
#pragma unroll
    for (uint32_t i = 0; i < kDim / 8; ++i) {
      auto* out = reinterpret_cast<float2*>(&s.o[warp][8 * i + lane / 4][pair]);
      *out = make_float2(sums.acc[i / 2][i % 2 * 2], sums.acc[i / 2][i % 2 * 2 + 1]);
    }
  } else {
    sums.for_each([&](uint32_t of, uint32_t channel, float x) { s.o[warp][channel][of] = x; });
  }
}

// Attends the block's pages, one warp per page, and leaves the results in s.o, s.l and s.high.
template <uint32_t kDim, KvFormat kFormat>
__device__ void attend(const Work<kDim>& w, uint32_t n_pages) {
  const uint32_t warp = threadIdx.x / kWarp;
  WarpSums<kDim, kFormat> sums;
#pragma unroll 1
  for (uint32_t i = warp; i < n_pages; i += kWarps) {
    float weight[2][2];
    begin_page(w, w.list[i], sums, weight);
    (void)fold_page(weight, sums.softmax, [&](float factor) { sums.scale(factor); });
    wait_for_values<kFormat>();
    sums.add(w, weight);
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
