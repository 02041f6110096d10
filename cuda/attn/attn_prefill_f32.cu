// Attention of many query rows over KV pages in f32, without tensor cores: any head_dim and device, one warp per query
// row and head. Also the attention mass that the last query row gives to each page.
#include "cuda/attn/attn_prefill.h"
#include "cuda/attn/head_size.cuh"
#include "cuda/attn/visible_tokens.cuh"
#include "cuda/pages/kv_rows.cuh"
#include "ops/attn_paged.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * kWarp;
constexpr float kUnseen = -__builtin_huge_valf();

// Where a token's key or value is that is attended: a prompt's own rows, the open page, or its page in the pool.
template <KvFormat kFormat>
struct RowSource {
  const float* own = nullptr;
  const uint16_t* open = nullptr;  // the rows of keys; values are behind them
  uint32_t token;

  __device__ RowSource(const AttnPagedArgs& a, uint32_t kv_head, uint32_t row, const float* rows, uint32_t t)
      : token(t) {
    if constexpr (kFormat == KvFormat::kBf16) return;
    const uint32_t pos = a.kv.first_pos[size_t{kv_head} * a.kv.capacity + row] + t;
    if (rows != nullptr && pos >= a.pos) own = rows + (size_t{pos - a.pos} * a.kv.n_kv_heads + kv_head) * a.kv.head_dim;
    if (a.kv.is_open(kv_head, row)) open = a.kv.open_page(kv_head, row);
  }
  // `part`: 0 for keys, 1 for values.
  template <class Rows>
  __device__ float at(const Rows& stored, uint32_t part, uint32_t i) const {
    if (own != nullptr) return own[i];
    return open != nullptr ? bf16_to_float(open[(part * kPageTokens + token) * stored.d + i]) : stored.at(token, i);
  }
};

// A query row of one head, in shared memory.
struct Query {
  const float* q;
  const float* q_sink;
  uint32_t pos;
  uint32_t begin;   // of the window
  uint32_t n_sink;  // positions below it are seen, too
};

// Logit of token lane / 2 of a page, -inf if the query does not see it. Two lanes share a token, in pieces of 8
// elements.
template <KvFormat kFormat>
__device__ float page_logit(const AttnPagedArgs& a, const Query& query, const PageList& list, uint32_t kv_head,
                            uint32_t row) {
  const uint32_t token = threadIdx.x % kWarp / 2, half = threadIdx.x % 2;
  const uint32_t dim = a.kv.head_dim;
  const uint32_t first_pos = a.kv.first_pos[list.table + row], len = a.kv.len[list.table + row];
  const uint32_t at = first_pos + token;
  const bool is_seen = token < len && at <= query.pos && (at >= query.begin || at < query.n_sink);
  float dot = 0.0f;
  if (is_seen) {
    const float* const q = token < sink_tokens(a, row, first_pos, len) ? query.q_sink : query.q;
    const uint16_t* const page = a.kv.pool + a.kv.slots[list.table + row] * size_t{page_units<kFormat>(dim)};
    const uint32_t middle = (dim / 8 + 1) / 2 * 8;
    for (uint32_t i = half == 0 ? 0 : middle; i < (half == 0 ? middle : dim); i += 8) {
      if constexpr (kFormat == KvFormat::kBf16) {
        const uint4 k = *reinterpret_cast<const uint4*>(page + token * dim + i);
        dot += q[i] * bf16_low(k.x) + q[i + 1] * bf16_high(k.x) + q[i + 2] * bf16_low(k.y) + q[i + 3] * bf16_high(k.y);
        dot +=
            q[i + 4] * bf16_low(k.z) + q[i + 5] * bf16_high(k.z) + q[i + 6] * bf16_low(k.w) + q[i + 7] * bf16_high(k.w);
      } else {
        const RowSource<kFormat> source(a, kv_head, row, a.k_rows, token);
        for (uint32_t j = i; j < i + 8; ++j) dot += q[j] * source.at(keys_at<kFormat>(page, dim), 0, j);
      }
    }
  }
  dot += __shfl_xor_sync(kAllLanes, dot, 1);
  const float logit = a.scale * dot;
  return !is_seen ? kUnseen : a.soft_cap == 0.0f ? logit : a.soft_cap * tanhf(logit / a.soft_cap);
}

// Copies a head's query, and its query for sink tokens, to shared memory [2, kMaxHeadDim]. Threads [0, n) take part.
__device__ Query load_query(const AttnPagedArgs& a, float* to, uint32_t tok, uint32_t head, uint32_t thread,
                            uint32_t n) {
  const Sight sight = sight_of(a, head / (a.n_heads / a.kv.n_kv_heads));
  const size_t from = (size_t{tok} * a.n_heads + head) * a.kv.head_dim;
  for (uint32_t i = thread; i < a.kv.head_dim; i += n) {
    to[i] = a.q[from + i];
    to[kMaxHeadDim + i] = a.q_sink != nullptr ? a.q_sink[from + i] : 0.0f;
  }
  return {to, to + kMaxHeadDim, a.pos + tok, sight.begin(a.pos + tok), sight.n_sink};
}

// Takes a sink into the maximum and the sum of a softmax; `keep` is the factor of what was summed before.
__device__ void add_sink(float sink, float& high, float& sum, float& keep) {
  const float top = fmaxf(high, sink);
  if (top == kUnseen) return;
  keep = expf(high - top);
  sum = sum * keep + expf(sink - top);
  high = top;
}

// Computes: out (and lse) of AttnPagedArgs.
// Shapes: see there.
// Launch: one warp per query row and head.
// Numerics: f32, an online softmax over the pages in ascending order.
// Traffic: every warp reads all pages that it sees.
template <KvFormat kFormat>
__global__ void __launch_bounds__(kThreads) attn_prefill_plain_kernel(AttnPagedArgs a) {
  __shared__ float queries[kWarps][2 * kMaxHeadDim];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const size_t index = size_t{blockIdx.x} * kWarps + warp;
  if (index >= size_t{a.n_tok} * a.n_heads) return;
  const uint32_t tok = static_cast<uint32_t>(index / a.n_heads), head = static_cast<uint32_t>(index % a.n_heads);
  const uint32_t kv_head = head / (a.n_heads / a.kv.n_kv_heads);
  const PageList list(a, kv_head, a.list_per_head ? head : kv_head);
  const Query query = load_query(a, queries[warp], tok, head, lane, kWarp);
  __syncwarp();

  const uint32_t dim = a.kv.head_dim;
  float sums[kMaxHeadDim / kWarp] = {};
  float high = kUnseen, sum = 0.0f;
  for (uint32_t i = 0; i < list.n; ++i) {
    const uint32_t row = list.row(i);
    if (a.kv.first_pos[list.table + row] > query.pos) break;
    const float logit = page_logit<kFormat>(a, query, list, kv_head, row);
    const float top = fmaxf(high, warp_max(logit));
    if (__any_sync(kAllLanes, logit != kUnseen) == 0) continue;
    const float base = top == kUnseen ? 0.0f : top;
    const float keep = expf(high - base);
    const float weight = logit == kUnseen ? 0.0f : expf(logit - base);
    high = top;
    sum = sum * keep + 0.5f * warp_sum(weight);  // two lanes have each token
    const uint16_t* const page = a.kv.pool + a.kv.slots[list.table + row] * size_t{page_units<kFormat>(dim)};
    const auto values = values_at<kFormat>(page, dim);
#pragma unroll
    for (uint32_t k = 0; k < kMaxHeadDim / kWarp; ++k) sums[k] *= keep;
    for (uint32_t j = 0; j < kPageTokens; ++j) {
      const float w = __shfl_sync(kAllLanes, weight, j * 2);
      if (w == 0.0f) continue;
      const RowSource<kFormat> source(a, kv_head, row, a.v_rows, j);
#pragma unroll
      for (uint32_t k = 0; k < kMaxHeadDim / kWarp; ++k) {
        if (k * kWarp + lane < dim) sums[k] += w * source.at(values, 1, k * kWarp + lane);
      }
    }
  }
  const bool is_blind = high == kUnseen;
  float keep = 1.0f;
  if (a.sinks != nullptr) add_sink(a.sinks[head], high, sum, keep);
#pragma unroll
  for (uint32_t k = 0; k < kMaxHeadDim / kWarp; ++k) {
    if (k * kWarp + lane < dim) a.out[index * dim + k * kWarp + lane] = is_blind ? 0.0f : keep * sums[k] / sum;
  }
  if (a.lse != nullptr && lane == 0) a.lse[index] = high == kUnseen ? kUnseen : high + logf(sum);
}

constexpr uint32_t kMassWarps = 16;

// Computes: page_mass of AttnPagedArgs for the last query row: first the log of each page's sum of exp(logit), then its
// share of the total.
// Launch: one block per head.
// Numerics: f32, fixed order.
// Traffic: the keys of all listed pages, once per head.
template <KvFormat kFormat>
__global__ void __launch_bounds__(kMassWarps* kWarp) attn_page_mass_kernel(AttnPagedArgs a) {
  __shared__ float queries[2 * kMaxHeadDim];
  __shared__ float warp_high[kMassWarps], warp_sums[kMassWarps];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t head = blockIdx.x, kv_head = head / (a.n_heads / a.kv.n_kv_heads);
  const PageList list(a, kv_head, a.list_per_head ? head : kv_head);
  const Query query = load_query(a, queries, a.n_tok - 1, head, threadIdx.x, kMassWarps * kWarp);
  float* const mass = a.page_mass + size_t{head} * a.kv.capacity;
  __syncthreads();

  float high = kUnseen, sum = 0.0f;  // of the warp's pages
  for (uint32_t i = warp; i < list.n; i += kMassWarps) {
    const float logit = page_logit<kFormat>(a, query, list, kv_head, list.row(i));
    const float top = warp_max(logit);
    const float page_sum = 0.5f * warp_sum(logit == kUnseen ? 0.0f : expf(logit - top));
    const float page_lse = top == kUnseen ? kUnseen : top + logf(page_sum);
    if (lane == 0) mass[i] = page_lse;
    if (top == kUnseen) continue;
    const float both = fmaxf(high, page_lse);
    sum = sum * expf(high - both) + expf(page_lse - both);
    high = both;
  }
  if (lane == 0) {
    warp_high[warp] = high;
    warp_sums[warp] = sum;
  }
  __syncthreads();
  high = kUnseen;
  sum = 0.0f;
  for (uint32_t w = 0; w < kMassWarps; ++w) high = fmaxf(high, warp_high[w]);
  for (uint32_t w = 0; w < kMassWarps; ++w)
    sum += warp_high[w] == kUnseen ? 0.0f : warp_sums[w] * expf(warp_high[w] - high);
  float keep = 1.0f;
  if (a.sinks != nullptr) add_sink(a.sinks[head], high, sum, keep);
  for (uint32_t i = threadIdx.x; i < list.n; i += kMassWarps * kWarp) {
    mass[i] = high == kUnseen || mass[i] == kUnseen ? 0.0f : expf(mass[i] - high) / sum;
  }
}

}  // namespace

Status attn_prefill_plain(OpContext& cx, const AttnPagedArgs& a) {
  const auto blocks = static_cast<uint32_t>((size_t{a.n_tok} * a.n_heads + kWarps - 1) / kWarps);
  return with_kv_format(a.kv.format, [&](auto format) {
    return launch("attn_prefill", attn_prefill_plain_kernel<format()>, blocks, kThreads, 0, stream_of(cx), false, a);
  });
}

Status attn_page_mass(OpContext& cx, const AttnPagedArgs& a) {
  return with_kv_format(a.kv.format, [&](auto format) {
    return launch("attn_paged: page mass", attn_page_mass_kernel<format()>, a.n_heads, kMassWarps * kWarp, 0,
                  stream_of(cx), false, a);
  });
}

}  // namespace weir::cuda
