// Computes: compensation tokens, merged into what attention gave (lib/models/compensate.cpp; docs/algorithms.md,
// "RazorAttention"): out, lse and page_mass of the KV heads with windows of their own.
// Launch: a block per KV head and kRows query rows. Each begins with what has left the stream and adds the tokens of
// the table that its rows do not see, in order, so that a row's sums do not depend on the division into blocks.
// Numerics: f32; the sums have the host's order, the products of query and key have not.
// Traffic: the pages of the table that are behind the windows, once per block: a page or two in a decode step.
// Paper: Tang et al., RazorAttention, arXiv:2407.15891, sec. 3.
#include "cuda/attn/compensate.cuh"

#include "cuda/attn/head_size.cuh"
#include "cuda/common/base.cuh"
#include "cuda/pages/kv_rows.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256, kWarps = kBlock / kWarp;
constexpr uint32_t kRows = 8;

// Which tokens of the table have been added: the next one is `token` of the row.
struct Cursor {
  uint32_t row, token, n;  // n: tokens in the sums
};

// Adds the tokens at positions below `end` that are not there yet. A thread adds some channels, and all threads have
// the same cursor.
template <KvFormat kFormat>
__device__ void add_until(const AttnPagedArgs& a, size_t table, uint32_t n_pages, uint64_t end, Cursor& at,
                          float* sums) {
  const uint32_t d = a.kv.head_dim;
  for (; at.row < n_pages; ++at.row, at.token = 0) {
    const uint32_t first_pos = a.kv.first_pos[table + at.row], len = a.kv.len[table + at.row];
    if (at.token >= len) continue;
    if (first_pos + at.token >= end) return;
    const uint32_t last = min(uint64_t{len}, end - first_pos);
    // Sinks are seen.
    const uint32_t first = max(at.token, a.head_sinks > first_pos ? a.head_sinks - first_pos : 0u);
    const uint16_t* page = a.kv.pool + size_t{a.kv.slots[table + at.row]} * page_units<kFormat>(d);
    for (uint32_t i = threadIdx.x; i < 2 * d; i += kBlock)
      sums[i] = add_column<kFormat>(page, d, i, first, last, sums[i]);
    at.n += first < last ? last - first : 0;
    at.token = last;
    if (last < len) return;
  }
}

// Merges the token into one row of one head, by one warp. Returns the share that is left to the others.
__device__ float merge(const AttnPagedArgs& a, size_t at, const float* sums, float n) {
  const uint32_t lane = threadIdx.x % kWarp, d = a.kv.head_dim;
  const float* q = a.q + at * d;
  float dot = 0.0f;
  for (uint32_t i = lane; i < d; i += kWarp) dot += q[i] * sums[i];
  dot = warp_sum(dot);
  const float logit = a.scale * (dot / n);
  const float weight = (a.soft_cap == 0.0f ? logit : a.soft_cap * tanhf(logit / a.soft_cap)) + logf(n);
  const float lse = a.lse[at], high = fmaxf(lse, weight);
  const float seen = expf(lse - high), mean = expf(weight - high), total = seen + mean;
  float* const out = a.out + at * d;
  for (uint32_t i = lane; i < d; i += kWarp) out[i] = (out[i] * seen + sums[d + i] / n * mean) / total;
  __syncwarp();  // all lanes have read lse
  if (lane == 0) a.lse[at] = high + logf(total);
  return seen / total;
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kBlock) compensate_kernel(const __grid_constant__ CompensateArgs k) {
  __shared__ float sums[2 * kMaxHeadDim];
  wait_for_previous();
  start_next();
  const AttnPagedArgs& a = k.attn;
  const uint32_t kv_head = blockIdx.x, group = a.n_heads / a.kv.n_kv_heads, d = a.kv.head_dim;
  const uint32_t window = a.head_windows[kv_head];
  if (window == 0) return;
  uint32_t rank = 0;
  for (uint32_t head = 0; head < kv_head; ++head) rank += a.head_windows[head] != 0 ? 1u : 0u;
  const size_t table = size_t{kv_head} * a.kv.capacity;
  const uint32_t n_pages = a.kv.n_pages[kv_head], pos = k.n_tokens != nullptr ? *k.n_tokens : a.pos;
  for (uint32_t i = threadIdx.x; i < 2 * d; i += kBlock) sums[i] = k.values[size_t{rank} * 2 * d + i];
  Cursor at = {0, 0, k.sums[rank].n_tokens};
  const uint32_t first = blockIdx.y * kRows, end = min(first + kRows, a.n_tok);
  for (uint32_t tok = first; tok < end; ++tok) {
    const uint64_t seen_end = uint64_t{pos} + tok + 1;
    add_until<kFormat>(a, table, n_pages, seen_end - min(seen_end, uint64_t{window}), at, sums);
    __syncthreads();
    for (uint32_t h = threadIdx.x / kWarp; h < group && at.n != 0; h += kWarps) {
      const uint32_t head = kv_head * group + h;
      const float rest = merge(a, size_t{tok} * a.n_heads + head, sums, static_cast<float>(at.n));
      if (a.page_mass == nullptr || tok + 1 < a.n_tok) continue;
      float* const mass = a.page_mass + size_t{head} * a.kv.capacity;
      for (uint32_t row = threadIdx.x % kWarp; row < n_pages; row += kWarp) mass[row] *= rest;
    }
    __syncthreads();  // the sums have been read
  }
}

}  // namespace

Status compensate(OpContext& cx, const CompensateArgs& a) {
  const dim3 grid(a.attn.kv.n_kv_heads, (a.attn.n_tok + kRows - 1) / kRows);
  return with_kv_format(a.attn.kv.format, [&](auto format) {
    return launch("compensate", compensate_kernel<format()>, grid, kBlock, 0, stream_of(cx), true, a);
  });
}

}  // namespace weir::cuda
