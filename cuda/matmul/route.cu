// The router of a mixture of experts: logits in f32, the choice of the largest ones, and their weights.
//
// For a decode step it is one kernel with a block per expert. The last block to finish chooses, so that no second
// launch waits for the logits. For prompts the logits and the choice are kernels of their own.
#include "cuda/matmul/route.cuh"

#include "ops/experts.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kRowWarps = 8;   // of a block of route_rows: experts that share the rows in L1
constexpr uint32_t kRowTokens = 4;  // whose logits a warp computes with one reading of the router's row

// The order in which experts are chosen, as an integer above 0: the larger value, then the lower index; NaN counts as
// -inf.
__device__ unsigned long long rank_of(float value, uint32_t expert) {
  const float x = isnan(value) ? -INFINITY : value + 0.0f;  // -0 becomes 0
  const uint32_t bits = __float_as_uint(x);
  const uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xFFFFFFFFu - expert);
}

__device__ unsigned long long warp_max(unsigned long long x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) {
    const unsigned long long other = __shfl_xor_sync(kAllLanes, x, i);
    x = other > x ? other : x;
  }
  return x;
}

// The largest that is not NaN.
__device__ float warp_max(float x) {
#pragma unroll
  for (uint32_t i = kWarp / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, i));
  return x;
}

// What a logit's weight is before it is divided by any sum.
struct Share {
  bool softmax;
  float most;  // of the logits
  __device__ float operator()(float logit) const { return softmax ? expf(logit - most) : 1.0f / (1.0f + expf(-logit)); }
};

// One warp: the chosen groups as bits, from the values of all experts.
__device__ unsigned long long choose_groups(const Router& r, const float* values) {
  const uint32_t lane = threadIdx.x % kWarp, n_groups = r.rule.n_groups, n = r.n_experts / n_groups;
  const auto finite_rank = [](float x) { return isnan(x) ? -INFINITY : x; };
  unsigned long long own[2] = {};  // ranks of groups lane and lane + kWarp; 0: there is none
  for (uint32_t g = 0; g < n_groups; ++g) {
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = lane; i < n; i += kWarp) {
      const float v = finite_rank(values[g * n + i]);
      second = fmaxf(second, fminf(first, v));
      first = fmaxf(first, v);
    }
#pragma unroll
    for (uint32_t i = kWarp / 2; i > 0; i /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, first, i), below = __shfl_xor_sync(kAllLanes, second, i);
      second = fmaxf(fminf(first, other), fmaxf(second, below));
      first = fmaxf(first, other);
    }
    if (g % kWarp == lane) own[g / kWarp] = rank_of(n == 1 ? first : first + second, g);
  }
  uint32_t before[2] = {};
  for (uint32_t g = 0; g < n_groups; ++g) {
    const unsigned long long other = __shfl_sync(kAllLanes, own[g / kWarp], g % kWarp);
    before[0] += other > own[0] ? 1u : 0u;
    before[1] += other > own[1] ? 1u : 0u;
  }
  const uint32_t low = __ballot_sync(kAllLanes, own[0] != 0 && before[0] < r.rule.n_groups_used);
  const uint32_t high = __ballot_sync(kAllLanes, own[1] != 0 && before[1] < r.rule.n_groups_used);
  return static_cast<unsigned long long>(high) << 32 | low;
}

// Shared memory of a warp that chooses.
struct Choice {
  float values[kMaxExperts];  // what decides
  uint32_t chosen[kMaxExpertsUsed];
};

// One warp: chooses a token's experts.
__device__ void choose(const Router& r, const float* logits, uint32_t* ids, float* weights, Choice& choice) {
  const uint32_t lane = threadIdx.x % kWarp, n = r.n_experts;
  const bool by_logits = r.choice_bias == nullptr && r.rule.n_groups <= 1;
  float largest = -INFINITY;
  for (uint32_t e = lane; e < n; e += kWarp) {
    const float logit = __ldcg(logits + e);
    choice.values[e] = logit;
    largest = fmaxf(largest, logit);
  }
  const Share share = {r.rule.score == RouteRule::Score::kSoftmax, warp_max(largest)};
  float all = 1.0f;
  if (share.softmax && !(by_logits && r.rule.normalise)) {
    all = 0.0f;
    for (uint32_t e = lane; e < n; e += kWarp) all += share(choice.values[e]);
    all = warp_sum(all);
  }
  for (uint32_t e = lane; e < n && !by_logits; e += kWarp) {
    const float bias = r.choice_bias != nullptr ? __ldg(r.choice_bias + e) : 0.0f;
    choice.values[e] = share(choice.values[e]) / all + bias;
  }
  __syncwarp();
  const bool grouped = r.rule.n_groups > 1;
  const uint32_t of_group = grouped ? n / r.rule.n_groups : n;
  const unsigned long long groups = grouped ? choose_groups(r, choice.values) : 1;
  unsigned long long last = ~0ull;
  for (uint32_t i = 0; i < r.n_used; ++i) {
    unsigned long long best = 0;
    for (uint32_t e = lane; e < n; e += kWarp) {
      if (grouped && (groups >> e / of_group & 1) == 0) continue;
      const unsigned long long rank = rank_of(choice.values[e], e);
      if (rank < last && rank > best) best = rank;
    }
    last = warp_max(best);
    if (lane == 0) choice.chosen[i] = 0xFFFFFFFFu - static_cast<uint32_t>(last);
  }
  __syncwarp();
  const auto score = [&](uint32_t e) { return share(__ldcg(logits + e)) / all; };
  float sum = 0.0f;
  for (uint32_t i = lane; i < r.n_used; i += kWarp) sum += score(choice.chosen[i]);
  sum = warp_sum(sum);
  sum = r.rule.normalise ? sum + kTinySum : 1.0f;
  for (uint32_t i = lane; i < r.n_used; i += kWarp) {
    const uint32_t e = choice.chosen[i];
    uint32_t place = 0;  // in ascending order
    for (uint32_t j = 0; j < r.n_used; ++j) place += choice.chosen[j] < e ? 1u : 0u;
    ids[place] = e;
    weights[place] = score(e) / sum * r.rule.scale;
  }
}

// Experts that a block of kThreads chooses from together; of more, one warp chooses as for prompts. So it does where an
// expert's value needs those of others.
constexpr uint32_t kMaxTogether = kThreads;
__device__ bool choose_together_can(const Router& r) {
  const bool alone = r.choice_bias == nullptr || r.rule.score == RouteRule::Score::kSigmoid;
  return r.n_experts <= kMaxTogether && r.rule.n_groups <= 1 && alone;
}

// One block: the same choice for at most kMaxTogether experts. A thread has an expert and counts those before it, so
// that nothing is chosen one after another.
__device__ void choose_together(const Router& r, const float* logits, uint32_t* ids, float* weights) {
  __shared__ unsigned long long ranks[kMaxTogether];
  __shared__ uint32_t chosen[kThreads / kWarp];
  __shared__ float sums[kThreads / kWarp], most;
  const uint32_t e = threadIdx.x, lane = e % kWarp, warp = e / kWarp;
  const bool is_expert = e < r.n_experts, is_softmax = r.rule.score == RouteRule::Score::kSoftmax;
  const float logit = is_expert ? __ldcg(logits + e) : 0.0f;
  float value = logit;
  if (r.choice_bias != nullptr && is_expert) value = Share{false, 0.0f}(logit) + __ldg(r.choice_bias + e);
  const unsigned long long rank = is_expert ? rank_of(value, e) : 0;
  ranks[e] = rank;
  __syncthreads();
  uint32_t before = 0;
#pragma unroll 8
  for (uint32_t i = 0; i < r.n_experts; ++i) before += ranks[i] > rank ? 1u : 0u;
  const bool is_chosen = is_expert && before < r.n_used;
  const uint32_t mask = __ballot_sync(kAllLanes, is_chosen);
  if (lane == 0) chosen[warp] = mask;
  if (is_expert && before == 0) most = isnan(logit) ? -INFINITY : logit;
  __syncthreads();
  const float share = is_expert ? Share{is_softmax, most}(logit) : 0.0f;
  const float part = warp_sum(is_chosen || !r.rule.normalise ? share : 0.0f);
  if (lane == 0) sums[warp] = part;
  __syncthreads();
  float sum = 0.0f;
  uint32_t place = __popc(mask & ((1u << lane) - 1));  // in ascending order of experts
#pragma unroll
  for (uint32_t w = 0; w < kThreads / kWarp; ++w) {
    sum += sums[w];
    place += w < warp ? __popc(chosen[w]) : 0;
  }
  if (!is_chosen) return;
  sum = r.rule.normalise ? sum + kTinySum : is_softmax ? sum : 1.0f;
  ids[place] = e;
  weights[place] = share / sum * r.rule.scale;
}

// Sum of v[2] over the block, in v of thread 0.
__device__ void block_sum(float (&v)[2]) {
  __shared__ float sums[2][kThreads / kWarp];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    v[i] = warp_sum(v[i]);
    if (threadIdx.x % kWarp == 0) sums[i][threadIdx.x / kWarp] = v[i];
  }
  __syncthreads();
  v[0] = v[1] = 0.0f;
#pragma unroll
  for (uint32_t w = 0; w < kThreads / kWarp; ++w) v[0] += sums[0][w], v[1] += sums[1][w];
}

__device__ float dot4(float4 a, float4 b) { return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.x, b.x, a.y * b.y))); }
__device__ float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

__device__ const float* router_row(const RouteArgs& a, uint32_t expert) {
  return expert < a.router.n_experts ? a.router.w + size_t{expert} * a.d_model : a.shared_router;
}

// Computes: the logits of one token, and from them ids and weights.
// Launch: one block per logit; what it reads of the router it loads before it waits.
// Numerics: f32; the norm's scale is applied to the logit.
__global__ void __launch_bounds__(kThreads) route_kernel(const RouteArgs a) {
  constexpr uint32_t kHeld = 4;
  __shared__ Choice choice;
  __shared__ bool is_last;
  const uint32_t expert = blockIdx.x, n = a.d_model / 4;
  const auto* row = reinterpret_cast<const float4*>(router_row(a, expert));
  const auto* x = reinterpret_cast<const float4*>(a.x);
  const auto* norm = reinterpret_cast<const float4*>(a.norm);
  float4 held[kHeld];
#pragma unroll
  for (uint32_t i = 0; i < kHeld; ++i) {
    if (i * kThreads + threadIdx.x < n) held[i] = __ldg(row + i * kThreads + threadIdx.x);
  }
  wait_for_previous();
  start_next();
  float sum[2] = {};  // of the products, and of the squares
  const auto add = [&](uint32_t at, float4 w) {
    float4 v = x[at];
    sum[1] += dot4(v, v);
    if (norm != nullptr) v = times(v, __ldg(norm + at));
    sum[0] += dot4(v, w);
  };
#pragma unroll
  for (uint32_t i = 0; i < kHeld; ++i) {
    if (i * kThreads + threadIdx.x < n) add(i * kThreads + threadIdx.x, held[i]);
  }
  for (uint32_t at = kHeld * kThreads + threadIdx.x; at < n; at += kThreads) add(at, __ldg(row + at));
  block_sum(sum);
  if (threadIdx.x == 0) {
    const float scale = norm == nullptr ? 1.0f : rsqrtf(sum[1] / static_cast<float>(a.d_model) + a.eps);
    const float bias = a.router.bias != nullptr && expert < a.router.n_experts ? a.router.bias[expert] : 0.0f;
    a.out.logits[expert] = sum[0] * scale + bias;
    __threadfence();
    is_last = atomicAdd(a.counter, 1u) == gridDim.x - 1;
    if (is_last) *a.counter = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  if (choose_together_can(a.router)) {
    choose_together(a.router, a.out.logits, a.out.ids, a.out.weights);
  } else if (threadIdx.x < kWarp) {
    choose(a.router, a.out.logits, a.out.ids, a.out.weights, choice);
  }
}

// Computes: the logits of many tokens.
// Launch: grid (logits / kRowWarps, tokens / kRowTokens), a warp per logit and kRowTokens tokens.
__global__ void __launch_bounds__(kRowWarps* kWarp) route_rows_kernel(const RouteArgs a) {
  const uint32_t expert = blockIdx.x * kRowWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t first = blockIdx.y * kRowTokens, n_tok = min(kRowTokens, a.n_tok - first), n = a.d_model / 4;
  if (expert >= a.out.n_logits) return;
  const auto* row = reinterpret_cast<const float4*>(router_row(a, expert));
  const auto* x = reinterpret_cast<const float4*>(a.x) + size_t{first} * n;
  float sum[kRowTokens] = {};
  for (uint32_t at = lane; at < n; at += kWarp) {
    const float4 w = __ldg(row + at);
#pragma unroll
    for (uint32_t t = 0; t < kRowTokens; ++t) {
      if (t < n_tok) sum[t] += dot4(x[size_t{t} * n + at], w);
    }
  }
#pragma unroll
  for (uint32_t t = 0; t < kRowTokens; ++t) {
    const float logit = warp_sum(sum[t]);
    if (lane != 0 || t >= n_tok) continue;
    const float bias = a.router.bias != nullptr && expert < a.router.n_experts ? a.router.bias[expert] : 0.0f;
    a.out.logits[size_t{first + t} * a.out.n_logits + expert] = logit + bias;
  }
}

// Computes: ids and weights of many tokens from their logits. Launch: one warp per token.
__global__ void __launch_bounds__(kThreads) choose_kernel(const RouteArgs a) {
  __shared__ Choice choices[kThreads / kWarp];
  const uint32_t warp = threadIdx.x / kWarp, tok = blockIdx.x * (kThreads / kWarp) + warp;
  if (tok >= a.n_tok) return;
  const size_t first = size_t{tok} * a.router.n_used;
  choose(a.router, a.out.logits + size_t{tok} * a.out.n_logits, a.out.ids + first, a.out.weights + first,
         choices[warp]);
}

// Computes: x[tok] *= sigmoid(logit of the shared expert's gate). Launch: one block per token.
__global__ void __launch_bounds__(kThreads)
    scale_by_gate_kernel(float* x, const float* logits, uint32_t n_logits, uint32_t n_experts, uint32_t n) {
  wait_for_previous();
  start_next();
  const float scale = 1.0f / (1.0f + expf(-__ldcg(logits + size_t{blockIdx.x} * n_logits + n_experts)));
  float* row = x + size_t{blockIdx.x} * n;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) row[i] *= scale;
}

}  // namespace

Status route_one(OpContext& cx, const RouteArgs& a, bool overlap) {
  return launch("route", route_kernel, dim3(a.out.n_logits), dim3(kThreads), 0, stream_of(cx), overlap, a);
}

Status route_rows(OpContext& cx, const RouteArgs& a) {
  const dim3 grid((a.out.n_logits + kRowWarps - 1) / kRowWarps, (a.n_tok + kRowTokens - 1) / kRowTokens);
  WEIR_TRY(launch("route_rows", route_rows_kernel, grid, dim3(kRowWarps * kWarp), 0, stream_of(cx), false, a));
  const uint32_t per_block = kThreads / kWarp;
  return launch("choose", choose_kernel, dim3((a.n_tok + per_block - 1) / per_block), dim3(kThreads), 0, stream_of(cx),
                false, a);
}

Status scale_by_gate(OpContext& cx, float* x, const Routing& r, uint32_t n_experts, uint32_t n_tok, uint32_t n,
                     bool overlap) {
  return launch("scale_by_gate", scale_by_gate_kernel, dim3(n_tok), dim3(kThreads), 0, stream_of(cx), overlap, x,
                r.logits, r.n_logits, n_experts, n);
}

}  // namespace weir::cuda
