// Computes: page_digest, statistics of the keys of full pages.
// Launch: grid (rows, KV heads), one thread per channel.
// Numerics: as the reference, bit for bit: sums run over the tokens of a page in order, those of the sphere's distances
// over the channels.
// Traffic: the keys of the pages once.
// Papers: as lib/ops/page_digest_ref.cpp.
#include "cuda/pages/page_digest.cuh"

#include "cuda/ops.h"
#include "cuda/pages/page_sketch.cuh"
#include "ops/page_digest.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;  // head_dim of most models

static_assert(WEIR_DIGEST_KINDS == 7, "page_digest_kernel: other digests");

template <KvFormat kFormat>
__global__ void __launch_bounds__(kBlock) page_digest_kernel(const PageDigestArgs a) {
  __shared__ float distance[kPageTokens];
  start_next();
  wait_for_previous();
  const uint32_t kv_head = blockIdx.y, row = a.first_row[kv_head] + blockIdx.x, d = a.kv.head_dim;
  if (row >= a.kv.n_pages[kv_head] || a.kv.len[size_t{kv_head} * a.kv.capacity + row] < kPageTokens) return;
  const size_t slot = a.kv.slots[size_t{kv_head} * a.kv.capacity + row];
  const bool sphere = a.kv.digest == DigestKind::kSphereMean;
  const size_t halves = a.kv.digest == DigestKind::kCentroid || sphere ? 1 : 2;
  const uint16_t* page = a.kv.pool + slot * a.kv.page_elements();
  const auto keys = keys_at<kFormat>(page, d);
  uint16_t* out = a.kv.digests + a.kv.digest_index(kv_head, row) * (halves * d + (sphere ? 2 : 0));
  for (uint32_t i = threadIdx.x; i < d; i += kBlock) digest_channel(a.kv.digest, PageChannel(keys, i), d, i, out);
  if (!sphere) return;
  __syncthreads();
  // The mean distance of the keys from the centre as stored.
  if (threadIdx.x < kPageTokens) {
    float square = 0.0f;
    for (uint32_t i = 0; i < d; ++i) {
      const float away = keys.at(threadIdx.x, i) - bf16_to_float(out[i]);
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

// Sketches are no statistics of channels: a block rotates all keys of a page.
template <KvFormat kFormat>
__global__ void __launch_bounds__(kBlock) sketch_kernel(const PageDigestArgs a) {
  start_next();
  wait_for_previous();
  const uint32_t kv_head = blockIdx.y, row = a.first_row[kv_head] + blockIdx.x, d = a.kv.head_dim;
  if (row >= a.kv.n_pages[kv_head] || a.kv.len[size_t{kv_head} * a.kv.capacity + row] < kPageTokens) return;
  const size_t slot = a.kv.slots[size_t{kv_head} * a.kv.capacity + row];
  const size_t n_elements = size_t{sketch_words(d)} * 2 * kPageTokens + kPageTokens;
  sketch_page_by_block<kBlock>(keys_at<kFormat>(a.kv.pool + slot * a.kv.page_elements(), d), d,
                               a.kv.digests + a.kv.digest_index(kv_head, row) * n_elements);
}

}  // namespace

Status page_digest(OpContext& cx, const PageDigestArgs& a) {
  if (a.n_rows == 0) return {};
  if (a.kv.digest == DigestKind::kSketch && (a.kv.head_dim % 2 != 0 || a.kv.head_dim > kMaxHeadDim))
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: sketches of heads of %u", a.kv.head_dim);
  return with_key_format(a.kv.format, [&](auto format) {
    const auto kernel = a.kv.digest == DigestKind::kSketch ? sketch_kernel<format()> : page_digest_kernel<format()>;
    return launch("page_digest", kernel, dim3(a.n_rows, a.kv.n_kv_heads), dim3(kBlock), 0, stream_of(cx), true, a);
  });
}

}  // namespace weir::cuda
