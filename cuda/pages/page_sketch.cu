// Computes: page_score of sketches (sketch_estimate of lib/ops/sketch.h).
// Launch: grid (KV heads, blocks along the capacity); blocks stride over the rows in use. A team of 16 lanes takes a
// page, a lane for each token; the queries of up to kMaxHeads heads are rotated and rounded by every block, in shared
// memory.
// Numerics: products of codes are whole numbers (dp4a), so exact; the log-sum-exp is f32, where the reference has f64.
// Traffic: each sketch once for up to kMaxHeads heads of the group. With 8 heads the products take about as long as the
// bytes; with fewer the bytes bound the time.
#include "cuda/pages/page_sketch.cuh"

#include <algorithm>

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kMaxHeads = 8;  // per pass over the sketches: one for each warp that prepares a query
constexpr uint32_t kTeams = kBlock / kPageTokens;
constexpr uint32_t kBlocksWanted = 792;  // six for each of 132 SMs

static_assert(kMaxHeads == kBlock / kWarp && kMaxHeads <= kPageTokens);

struct Queries {
  float rows[kMaxHeads * kMaxHeadDim];
  int codes[kMaxHeads * kMaxHeadDim / 4];  // four in each
  int sum[kMaxHeads];
  float factor[kMaxHeads];
};

__device__ inline int warp_total(int x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(kAllLanes, x, i);
  return x;
}

// Rotates and rounds q [n, d]: a warp takes a head.
__device__ inline void sketch_queries(const float* q, uint32_t n, uint32_t d, Queries& out) {
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n * d; i += kBlock) out.rows[i] = q[i];
  rotate_rows<kBlock>(out.rows, n, d);
  const uint32_t head = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, n_fours = sketch_words(d) * 4;
  if (head < n) {
    const float* row = out.rows + head * d;
    float most = 0.0f;
    bool finite = true;
    for (uint32_t i = lane; i < d; i += kWarp) {
      most = fmaxf(most, fabsf(row[i]));
      finite = finite && isfinite(row[i]);
    }
    most = warp_max(most);
    finite = __all_sync(kAllLanes, finite);
    const float inverse = __fdiv_rn(127.0f, most);
    const bool has_codes = finite && isfinite(inverse);
    int sum = 0;
    for (uint32_t i = lane; i < n_fours; i += kWarp) {
      uint32_t four = 0;
      for (uint32_t k = 0; k < 4; ++k) {
        const int code = has_codes && 4 * i + k < d ? __float2int_rn(__fmul_rn(row[4 * i + k], inverse)) : 0;
        sum += code;
        four |= (static_cast<uint32_t>(code) & 0xFFu) << 8 * k;
      }
      out.codes[head * n_fours + i] = static_cast<int>(four);
    }
    sum = warp_total(sum);
    if (lane == 0) {
      out.sum[head] = sum;
      out.factor[head] = finite ? __fdiv_rn(most, 127.0f) : NAN;
    }
  }
  __syncthreads();
}

__device__ inline float team_max(float x) {
#pragma unroll
  for (uint32_t i = kPageTokens / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, i));
  return x;
}

__device__ inline float team_total(float x) {
#pragma unroll
  for (uint32_t i = kPageTokens / 2; i > 0; i /= 2) x += __shfl_xor_sync(kAllLanes, x, i);
  return x;
}

__device__ inline int four_words(uint32_t word, const int* q, int sum) {
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) sum = __dp4a(static_cast<int>(word >> 2 * j & kSketchMask), q[j], sum);
  return sum;
}

// kWords: of a token, or 0: as many as the heads need. Words that are known stay in registers for all heads.
template <uint32_t kWords>
__global__ void __launch_bounds__(kBlock) sketch_score_kernel(const PageScoreArgs a) {
  extern __shared__ uint4 shared[];
  Queries& queries = *reinterpret_cast<Queries*>(shared);
  wait_for_previous();
  start_next();
  const uint32_t kv_head = blockIdx.x, n = a.kv.n_pages[kv_head], d = a.kv.head_dim;
  const uint32_t n_words = kWords != 0 ? kWords : sketch_words(d), n_elements = (n_words * 2 + 1) * kPageTokens;
  const uint32_t lane = threadIdx.x % kPageTokens, team = threadIdx.x / kPageTokens,
                 group = a.n_heads / a.kv.n_kv_heads;
  if (blockIdx.y * kTeams >= n) return;
  for (uint32_t first_head = 0; first_head < group; first_head += kMaxHeads) {
    const uint32_t n_heads = min(kMaxHeads, group - first_head), head = kv_head * group + first_head;
    sketch_queries(a.q + size_t{head} * d, n_heads, d, queries);
    // All lanes of a warp stay in the loop, because the shuffles need them. Rows beyond the last repeat it and are not
    // stored.
    for (uint32_t base = blockIdx.y * kTeams; base < n; base += gridDim.y * kTeams) {
      const uint32_t row = base + team, read = min(row, n - 1);
      const uint16_t* sketch = a.kv.digests + a.kv.digest_index(kv_head, read) * n_elements;
      const uint32_t* words = reinterpret_cast<const uint32_t*>(sketch) + lane;
      uint32_t own[kWords != 0 ? kWords : 1];
      if constexpr (kWords != 0) {
#pragma unroll
        for (uint32_t w = 0; w < kWords; ++w) own[w] = words[w * kPageTokens];
      }
      const uint16_t bits = sketch[n_words * kPageTokens * 2 + lane];
      const float scale = bf16_to_float(bits);
      float high = 0.0f, total = 1.0f;  // of head `lane` of the pass
      for (uint32_t g = 0; g < n_heads; ++g) {
        const int* q = queries.codes + g * n_words * 4;
        int product = 0;
        if constexpr (kWords != 0) {
#pragma unroll
          for (uint32_t w = 0; w < kWords; ++w) product = four_words(own[w], q + 4 * w, product);
        } else {
          for (uint32_t w = 0; w < n_words; ++w) product = four_words(words[w * kPageTokens], q + 4 * w, product);
        }
        const float whole = static_cast<float>(2 * product - 3 * queries.sum[g]);
        const float logit = whole * (queries.factor[g] * a.scale) * scale, most = team_max(logit);
        const float sum = team_total(expf(logit - most));
        if (g == lane) high = most, total = sum;
      }
      float score = (high + logf(total)) / a.scale;
      if (score > kSketchMost) score = kSketchMost;
      const uint32_t shift = threadIdx.x % kWarp / kPageTokens * kPageTokens, mask = 0xFFFFu;
      const bool is_infinite = (__ballot_sync(kAllLanes, bits == kSketchInfinite) >> shift & mask) != 0;
      const bool is_lost = (__ballot_sync(kAllLanes, (bits & 0x7FFFu) > kSketchInfinite) >> shift & mask) != 0;
      if (is_infinite) score = kSketchMost;
      if (is_lost) score = NAN;
      if (lane >= n_heads || row >= n) continue;
      const bool has_digest = row + 1 < n || a.kv.len[size_t{kv_head} * a.kv.capacity + row] == kPageTokens;
      a.score[size_t{head + lane} * a.kv.capacity + row] = has_digest ? score : -INFINITY;
    }
  }
}

}  // namespace

Status sketch_score(OpContext& cx, const PageScoreArgs& a) {
  const uint32_t d = a.kv.head_dim;
  if (d % 2 != 0 || d > kMaxHeadDim)
    return fail(WEIR_ERR_UNSUPPORTED, "CUDA: page_score of sketches with heads of %u", d);
  const uint32_t most = std::max(1u, kBlocksWanted / a.kv.n_kv_heads);
  const dim3 grid(a.kv.n_kv_heads, std::clamp((a.kv.capacity + kTeams - 1) / kTeams, 1u, most));
  const auto kernel = d == 64 ? sketch_score_kernel<4> : d == 128 ? sketch_score_kernel<8> : sketch_score_kernel<0>;
  return launch("page_score", kernel, grid, kBlock, sizeof(Queries), stream_of(cx), true, a);
}

}  // namespace weir::cuda
