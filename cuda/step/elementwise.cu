// The small ops: embedding, RMS norm, soft caps of the logits, rotation and appending of many rows, digests of the
// appended keys.
#include <algorithm>
#include <iterator>

#include "cuda/ops.h"
#include "cuda/pages/kv_rows.cuh"
#include "cuda/quant/formats.cuh"
#include "cuda/step/step.cuh"
#include "ops/embed.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/soft_cap.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// Decodes row tokens[blockIdx.x] of the table, one unit per thread at a time.
template <WeightType T>
__global__ void embed_kernel(const EmbedArgs a) {
  using F = Format<T>;
  start_next();
  wait_for_previous();
  const uint32_t n_units = a.table.n_cols / F::kUnit;
  const typename F::Planes planes = F::planes(a.table.data, size_t{a.table.n_rows} * n_units);
  const size_t row = static_cast<size_t>(a.tokens[blockIdx.x]);
  float* x = a.x + size_t{blockIdx.x} * a.table.n_cols;
  for (uint32_t unit = threadIdx.x; unit < n_units; unit += kThreads) {
    float v[F::kUnit];
    F::decode(F::load(F::at(planes, row * n_units + unit)), unit % 8, v);
#pragma unroll
    for (uint32_t i = 0; i < F::kUnit; i += 4)
      *reinterpret_cast<float4*>(x + unit * F::kUnit + i) =
          make_float4(v[i] * a.scale, v[i + 1] * a.scale, v[i + 2] * a.scale, v[i + 3] * a.scale);
  }
}

__global__ void rms_norm_kernel(const RmsNormArgs a) {
  __shared__ float sums[kThreads / kWarp];
  const float* x = a.x + size_t{blockIdx.x} * a.n;
  float* y = a.y + size_t{blockIdx.x} * a.n;
  float sum = 0.0f;
  for (uint32_t i = threadIdx.x; i < a.n; i += kThreads) sum += x[i] * x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  sum = 0.0f;
  for (uint32_t i = 0; i < kThreads / kWarp; ++i) sum += sums[i];
  const float scale = rsqrtf(sum / static_cast<float>(a.n) + a.eps);
  for (uint32_t i = threadIdx.x; i < a.n; i += kThreads) {
    const float normed = x[i] * scale * a.weight[i];
    y[i] = a.accumulate ? y[i] + normed : normed;
  }
}

__global__ void soft_cap_kernel(const SoftCapArgs a) {
  start_next();
  wait_for_previous();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < a.n) a.x[i] = a.cap * tanhf(a.x[i] / a.cap);
}

// rope_append: blockIdx.x is the token; each warp takes one head at a time, query heads first, then KV heads.
struct RopeKernelArgs {
  RopeAppendArgs op;
  const uint32_t* n_tokens;  // position of the first token in device memory, or null
};

__device__ void rotate_head(const float* x, float* y, const float* cos_sin, const RopeAppendArgs& a, const float* norm,
                            float inverse) {
  const uint32_t lane = threadIdx.x % kWarp, half = a.rope_dim / 2;
  const auto value = [&](uint32_t i) { return norm != nullptr ? x[i] * inverse * norm[i] : x[i]; };
  for (uint32_t i = lane; i < half; i += kWarp) {
    const uint32_t first = a.layout == RopeLayout::kAdjacent ? 2 * i : i;
    const uint32_t second = a.layout == RopeLayout::kAdjacent ? 2 * i + 1 : i + half;
    const float cos = cos_sin[2 * i], sin = cos_sin[2 * i + 1];
    const float x0 = value(first), x1 = value(second);
    y[first] = x0 * cos - x1 * sin;
    y[second] = x0 * sin + x1 * cos;
  }
  for (uint32_t i = a.rope_dim + lane; i < a.kv.head_dim; i += kWarp) y[i] = value(i);
}

__device__ float head_scale(const float* x, const float* norm, float eps, uint32_t n) {
  if (norm == nullptr) return 1.0f;
  float sum = 0.0f;
  for (uint32_t i = threadIdx.x % kWarp; i < n; i += kWarp) sum += x[i] * x[i];
  return rsqrtf(warp_sum(sum) / static_cast<float>(n) + eps);
}

template <KvFormat kFormat>
__device__ void store_token(const RopeAppendArgs& a, uint32_t tok, uint32_t kv_head, uint32_t pos) {
  const uint32_t d = a.kv.head_dim, lane = threadIdx.x % kWarp;
  const size_t table = size_t{kv_head} * a.kv.capacity;
  const uint32_t offset = pos + tok - a.kv.first_pos[table + a.append_row[kv_head]];
  const size_t slot = a.kv.slots[table + a.append_row[kv_head] + offset / kPageTokens];
  const size_t from = (size_t{tok} * a.kv.n_kv_heads + kv_head) * d;
  if constexpr (kFormat == KvFormat::kBf16) {
    uint16_t* keys = a.kv.pool + slot * a.kv.page_elements() + size_t{offset % kPageTokens} * d;
    for (uint32_t i = lane; i < d; i += kWarp) {
      keys[i] = float_to_bf16(a.k[from + i]);
      keys[kPageTokens * d + i] = float_to_bf16(a.v[from + i]);
    }
  } else {
    const uint32_t row = a.append_row[kv_head] + offset / kPageTokens;
    uint16_t* page = a.kv.pool + slot * page_units<kFormat>(d);
    uint16_t* open = a.kv.is_open(kv_head, row) ? a.kv.open_page(kv_head, row) : nullptr;
    for (uint32_t block = 0; block < d / kScaleElements; ++block) {
      const size_t at = from + block * kScaleElements + lane;
      store_block(keys_at<kFormat>(page, d), offset % kPageTokens, block, a.k[at]);
      store_block(values_at<kFormat>(page, d), offset % kPageTokens, block, a.v[at]);
      if (open == nullptr) continue;
      uint16_t* in_bf16 = open + offset % kPageTokens * d + block * kScaleElements + lane;
      in_bf16[0] = float_to_bf16(a.k[at]);
      in_bf16[kPageTokens * d] = float_to_bf16(a.v[at]);
    }
  }
}

template <KvFormat kFormat>
__global__ void rope_append_kernel(const RopeKernelArgs k) {
  start_next();
  wait_for_previous();
  const RopeAppendArgs& a = k.op;
  const uint32_t d = a.kv.head_dim, tok = blockIdx.x, pos = k.n_tokens != nullptr ? *k.n_tokens : a.pos;
  const float* cos_sin = a.cos_sin + size_t{tok} * a.rope_dim;
  extern __shared__ float heads[];
  float* copy = heads + threadIdx.x / kWarp * d;
  for (uint32_t i = threadIdx.x / kWarp; i < a.n_heads + a.kv.n_kv_heads; i += kThreads / kWarp) {
    const bool is_query = i < a.n_heads;
    const uint32_t head = is_query ? i : i - a.n_heads;
    float* x = is_query ? a.q + (size_t{tok} * a.n_heads + head) * d : a.k + (size_t{tok} * a.kv.n_kv_heads + head) * d;
    const float* norm = is_query ? a.q_norm : a.k_norm;
    // The elements of a pair lie in different lanes, and the result overwrites the input: rotate from a copy.
    for (uint32_t j = threadIdx.x % kWarp; j < d; j += kWarp) copy[j] = x[j];
    __syncwarp();
    const float inverse = head_scale(copy, norm, a.norm_eps, d);
    if (is_query && a.q_sink != nullptr)
      rotate_head(copy, a.q_sink + (size_t{tok} * a.n_heads + head) * d, a.cos_sin_sink + size_t{tok} * a.rope_dim, a,
                  norm, inverse);
    rotate_head(copy, x, cos_sin, a, norm, inverse);
    __syncwarp();
    if (!is_query) store_token<kFormat>(a, tok, head, pos);
  }
}

// A key as digests have it.
template <RowFormat kRow>
__device__ uint16_t key_of_digest(const PageRows<kRow, const uint16_t>& keys, uint32_t token, uint32_t i) {
  if constexpr (kRow == RowFormat::kBf16) return keys.units[token * keys.d + i];
  return float_to_bf16(keys.at(token, i));
}

// Updates the maximum and minimum digests with the keys that this call stored. Grid (KV heads, blocks that stride over
// the pages); a thread takes a channel and goes over the tokens in order.
template <KvFormat kFormat>
__global__ void update_minmax_kernel(const RopeKernelArgs k) {
  start_next();
  wait_for_previous();
  const RopeAppendArgs& a = k.op;
  const uint32_t d = a.kv.head_dim, kv_head = blockIdx.x, pos = k.n_tokens != nullptr ? *k.n_tokens : a.pos;
  const size_t table = size_t{kv_head} * a.kv.capacity;
  const uint32_t row = a.append_row[kv_head], first = pos - a.kv.first_pos[table + row];
  for (uint32_t page = blockIdx.y; page * kPageTokens < first + a.n_tok; page += gridDim.y) {
    const size_t slot = a.kv.slots[table + row + page];
    const uint16_t* in_pool = a.kv.pool + slot * a.kv.page_elements();
    const auto keys = keys_at<kFormat>(in_pool, d);
    uint16_t* high = a.kv.digests + a.kv.digest_index(kv_head, row + page) * 2 * d;
    const uint32_t begin = page == 0 ? first : 0, end = min(kPageTokens, first + a.n_tok - page * kPageTokens);
    for (uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
      uint16_t most = high[i], least = high[d + i];
      for (uint32_t t = begin; t < end; ++t) {
        const uint16_t key = key_of_digest(keys, t, i);
        if (t == 0 || bf16_to_float(key) > bf16_to_float(most)) most = key;
        if (t == 0 || bf16_to_float(key) < bf16_to_float(least)) least = key;
      }
      high[i] = most;
      high[d + i] = least;
    }
  }
}

template <KvFormat kFormat>
__global__ void rebuild_last_kernel(const KvView kv) {
  const uint32_t d = kv.head_dim, kv_head = blockIdx.x, n = kv.n_pages[kv_head];
  if (n == 0) return;
  const size_t at = size_t{kv_head} * kv.capacity + n - 1, slot = kv.slots[at];
  if (kv.slots[at] == kNoSlot) return;  // with recall, a full page whose digest is complete
  const uint16_t* in_pool = kv.pool + slot * kv.page_elements();
  const auto keys = keys_at<kFormat>(in_pool, d);
  uint16_t* digest = kv.digests + kv.digest_index(kv_head, n - 1) * 2 * d;
  for (uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    uint16_t most = key_of_digest(keys, 0, i), least = most;
    for (uint32_t t = 1; t < kv.len[at]; ++t) {
      const uint16_t key = key_of_digest(keys, t, i);
      if (bf16_to_float(key) > bf16_to_float(most)) most = key;
      if (bf16_to_float(key) < bf16_to_float(least)) least = key;
    }
    digest[i] = most;
    digest[d + i] = least;
  }
}

}  // namespace

// Checks that this build has code for the device, and lowers `arch` to the architecture that the code was compiled for.
Status check_kernels(int32_t& arch) {
  cudaFuncAttributes attributes;
  WEIR_CUDA_TRY(cudaFuncGetAttributes(&attributes, rebuild_last_kernel<KvFormat::kBf16>), "looking for kernels");
  // PTX of an older architecture lacks what the sources compile for newer ones only.
  arch = std::min(arch, static_cast<int32_t>(attributes.ptxVersion));
  return {};
}

// Code for a device runs on later minor versions of its major one; of newer ones the driver knows whether there is PTX.
bool may_have_kernels(int32_t arch) {
  constexpr int32_t kArchs[] = {__CUDA_ARCH_LIST__};  // 900: 9.0
  return std::any_of(std::begin(kArchs), std::end(kArchs), [&](int32_t a) { return a / 10 <= arch; });
}

Status rebuild_last_minmax(OpContext& cx, const KvView& kv) {
  return with_key_format(kv.format, [&](auto format) {
    return launch("rebuild_last", rebuild_last_kernel<format()>, dim3(kv.n_kv_heads), dim3(128), 0, stream_of(cx),
                  false, kv);
  });
}

Status embed(OpContext& cx, const EmbedArgs& a) {
  switch (a.table.type) {
#define WEIR_QUANT(Name, text, gguf_id, block_weights, block_bytes) \
  case WeightType::k##Name:                                         \
    return launch("embed", embed_kernel<WeightType::k##Name>, dim3(a.n_tok), dim3(kThreads), 0, stream_of(cx), true, a);
#include "quant/quants.inc"
#undef WEIR_QUANT
  }
  return fail(WEIR_ERR_INTERNAL, "embed: weight type %d", static_cast<int>(a.table.type));
}

Status rms_norm(OpContext& cx, const RmsNormArgs& a) {
  return launch("rms_norm", rms_norm_kernel, dim3(a.n_tok), dim3(kThreads), 0, stream_of(cx), false, a);
}

Status soft_cap(OpContext& cx, const SoftCapArgs& a) {
  return launch("soft_cap", soft_cap_kernel, dim3((a.n + kThreads - 1) / kThreads), dim3(kThreads), 0, stream_of(cx),
                false, a);
}

Status rope_append_at(OpContext& cx, const RopeAppendArgs& a, const uint32_t* n_tokens, bool overlap) {
  const RopeKernelArgs k = {a, n_tokens};
  const size_t shared = kThreads / kWarp * a.kv.head_dim * sizeof(float);
  WEIR_TRY(with_kv_format(a.kv.format, [&](auto format) {
    return launch("rope_append", rope_append_kernel<format()>, dim3(a.n_tok), dim3(kThreads), shared, stream_of(cx),
                  overlap, k);
  }));
  if (a.kv.digest != DigestKind::kMinMax) return {};
  const uint32_t n_pages = a.n_tok / kPageTokens + 2;
  return with_key_format(a.kv.format, [&](auto format) {
    return launch("update_minmax", update_minmax_kernel<format()>, dim3(a.kv.n_kv_heads, n_pages < 256 ? n_pages : 256),
                  dim3(128), 0, stream_of(cx), true, k);
  });
}

Status rope_append(OpContext& cx, const RopeAppendArgs& a) { return rope_append_at(cx, a, nullptr, true); }

}  // namespace weir::cuda
