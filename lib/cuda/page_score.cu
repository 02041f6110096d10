// Computes: estimates of q.k over pages from their digests. Launch: (KV heads, parts of the capacity); blocks go over the rows in use. Numerics: sums in
// f32, where the reference has f64. Traffic: each digest once for up to kMostHeads heads of the group; a step is bound by these bytes.
// Papers: as lib/ops/page_score_ref.cpp.
#include <algorithm>

#include "cuda/common.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/team_sum.cuh"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kMostHeads = 8;  // of a pass over the digests; their queries are in registers
constexpr uint32_t kBlocksWanted =
    792;  // six blocks for each of 132 SMs, so that loads of one hide the latency of another
constexpr uint32_t kLaneChannels = 8;  // one 16-byte load
constexpr uint32_t kInFlight = 2;      // rows that a team of lanes loads before it computes

// The estimates by what they sum: kMinMax and kCuboidMean have one formula.
enum class Form : uint8_t { kBound, kMean, kMeanStd, kSphere };

Form form_of(DigestKind kind) {
  switch (kind) {
    case DigestKind::kSphereMean:
      return Form::kSphere;
    case DigestKind::kCentroid:
      return Form::kMean;
    case DigestKind::kMeanStd:
      return Form::kMeanStd;
    default:
      return Form::kBound;
  }
}

struct Rows {
  const PageScoreArgs& a;
  uint32_t kv_head, n;
  const uint32_t* slots;

  __device__ Rows(const PageScoreArgs& args, uint32_t head)
      : a(args), kv_head(head), n(args.kv.n_pages[head]), slots(args.kv.slots + size_t{head} * args.kv.capacity) {}
  __device__ bool has_digest(uint32_t row) const {
    return row + 1 < n || a.kv.digest == DigestKind::kMinMax ||
           a.kv.len[size_t{kv_head} * a.kv.capacity + row] == kPageTokens;
  }
  __device__ void store(uint32_t head, uint32_t row, float score) const {
    a.score[size_t{head} * a.kv.capacity + row] = has_digest(row) ? score : -INFINITY;
  }
};

// What one pair of channels adds; `first` and `second` are the digest's halves.
template <Form kForm>
__device__ inline void add_channel(float q, float first, float second, float& sum, float& square) {
  if constexpr (kForm == Form::kBound) {
    sum += fmaxf(q * first, q * second);
  } else {
    sum = fmaf(q, first, sum);
    if constexpr (kForm == Form::kMeanStd) square = fmaf(q * second, q * second, square);
  }
}

__device__ inline float low_or_high(const uint4& v, uint32_t i) {
  const uint32_t pair = i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w;
  return i % 2 == 0 ? bf16_low(pair) : bf16_high(pair);
}

// Digests with halves of kDim channels, 64 or 128: a team of kDim / 8 lanes has a row, every lane 8 channels of all kHeads heads.
template <Form kForm, uint32_t kDim, uint32_t kHeads>
__global__ void __launch_bounds__(kBlock) page_score_team(const PageScoreArgs a) {
  constexpr uint32_t kLanes = kDim / kLaneChannels, kTeams = kBlock / kLanes;
  constexpr bool kTwo = kForm != Form::kMean;  // halves
  constexpr size_t kVectors = (kTwo ? 2 : 1) * kLanes;
  start_next();
  wait_for_previous();
  const Rows rows(a, blockIdx.x);
  const uint32_t lane = threadIdx.x % kLanes, team = threadIdx.x / kLanes, group = a.n_heads / a.kv.n_kv_heads;
  const auto* digests = reinterpret_cast<const uint4*>(a.kv.digests);
  const uint32_t first_row = blockIdx.y * kTeams * kInFlight;
  if (first_row >= rows.n) return;
  for (uint32_t first_head = 0; first_head < group; first_head += kHeads) {
    const uint32_t n_heads = min(kHeads, group - first_head);
    float q[kHeads][kLaneChannels];
#pragma unroll
    for (uint32_t g = 0; g < kHeads; ++g) {
      const uint32_t head = rows.kv_head * group + first_head + min(g, n_heads - 1);
      const auto* from = reinterpret_cast<const float4*>(a.q + size_t{head} * kDim) + lane * 2;
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const float4 v = from[i];
        q[g][4 * i] = v.x, q[g][4 * i + 1] = v.y, q[g][4 * i + 2] = v.z, q[g][4 * i + 3] = v.w;
      }
    }
    // All lanes of a warp stay in the loop: the exchange needs them. Rows beyond the last are read as the last and not stored.
    for (uint32_t base = first_row; base < rows.n; base += gridDim.y * kTeams * kInFlight) {
      uint4 half[kInFlight][2];
      uint32_t slot[kInFlight];
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) slot[i] = rows.slots[min(base + i * kTeams + team, rows.n - 1)];
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) {
        const uint4* digest = digests + slot[i] * kVectors + lane;
        half[i][0] = digest[0];
        half[i][1] = kTwo ? digest[kLanes] : uint4{};
      }
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) {
        float sum[kHeads] = {}, square[kHeads] = {};
#pragma unroll
        for (uint32_t c = 0; c < kLaneChannels; ++c) {
          const float first = low_or_high(half[i][0], c), second = low_or_high(half[i][1], c);
#pragma unroll
          for (uint32_t g = 0; g < kHeads; ++g) add_channel<kForm>(q[g][c], first, second, sum[g], square[g]);
        }
        float score = team_sum<kLanes>(sum, lane);
        if constexpr (kForm == Form::kMeanStd) score += a.spread * sqrtf(team_sum<kLanes>(square, lane));
        const uint32_t row = base + i * kTeams + team;
        if (lane < n_heads && row < rows.n) rows.store(rows.kv_head * group + first_head + lane, row, score);
      }
    }
  }
}

// Any even head size and every kind: a warp has a row; queries of up to kMostHeads heads are in shared memory, [kMostHeads, head_dim], and their norms.
template <Form kForm>
__global__ void __launch_bounds__(kBlock) page_score_warp(const PageScoreArgs a) {
  extern __shared__ float q[];
  __shared__ float norm[kMostHeads];
  start_next();
  wait_for_previous();
  const Rows rows(a, blockIdx.x);
  const uint32_t d = a.kv.head_dim, group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = kBlock / kWarp;
  const uint32_t n_elements = kForm == Form::kSphere ? d + 2 : kForm == Form::kMean ? d : 2 * d;
  if (blockIdx.y * n_warps >= rows.n) return;
  for (uint32_t first_head = 0; first_head < group; first_head += kMostHeads) {
    const uint32_t n_heads = min(kMostHeads, group - first_head);
    const float* from = a.q + size_t{rows.kv_head * group + first_head} * d;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n_heads * d; i += kBlock) q[i] = from[i];
    __syncthreads();
    if (kForm == Form::kSphere) {
      if (warp < n_heads) {
        float square = 0.0f;
        for (uint32_t i = lane; i < d; i += kWarp) square = fmaf(q[warp * d + i], q[warp * d + i], square);
        square = warp_sum(square);
        if (lane == 0) norm[warp] = sqrtf(square);
      }
      __syncthreads();
    }
    for (uint32_t row = blockIdx.y * n_warps + warp; row < rows.n; row += gridDim.y * n_warps) {
      const auto* digest = reinterpret_cast<const uint32_t*>(a.kv.digests + size_t{rows.slots[row]} * n_elements);
      float sum[kMostHeads] = {}, square[kMostHeads] = {};
      for (uint32_t i = lane; i < d / 2; i += kWarp) {
        const uint32_t first = digest[i];
        const uint32_t second = kForm == Form::kBound || kForm == Form::kMeanStd ? digest[d / 2 + i] : 0;
#pragma unroll
        for (uint32_t g = 0; g < kMostHeads; ++g) {
          if (g >= n_heads) break;
          const float* pair = q + g * d + 2 * i;
          add_channel<kForm>(pair[0], bf16_low(first), bf16_low(second), sum[g], square[g]);
          add_channel<kForm>(pair[1], bf16_high(first), bf16_high(second), sum[g], square[g]);
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < kMostHeads; ++g) {
        if (g >= n_heads) break;
        float score = warp_sum(sum[g]);
        if (kForm == Form::kMeanStd) score += a.spread * sqrtf(warp_sum(square[g]));
        if (kForm == Form::kSphere) score += bf16_low(digest[d / 2]) * norm[g];
        if (lane == 0) rows.store(rows.kv_head * group + first_head + g, row, score);
      }
    }
  }
}

// Blocks of one KV head that go over the rows, `block_rows` at a time.
uint32_t parts_of(const PageScoreArgs& a, uint32_t block_rows) {
  const uint32_t most = std::max(1u, kBlocksWanted / a.kv.n_kv_heads);
  return std::clamp((a.kv.capacity + block_rows - 1) / block_rows, 1u, most);
}

template <Form kForm, uint32_t kDim, uint32_t kHeads>
Status launch_team(OpContext& cx, const PageScoreArgs& a) {
  const dim3 grid(a.kv.n_kv_heads, parts_of(a, kBlock / (kDim / kLaneChannels) * kInFlight));
  return launch("page_score", page_score_team<kForm, kDim, kHeads>, grid, kBlock, 0, stream_of(cx), true, a);
}

template <Form kForm, uint32_t kDim>
Status launch_heads(OpContext& cx, const PageScoreArgs& a) {
  const uint32_t group = a.n_heads / a.kv.n_kv_heads;
  if (group == 1) return launch_team<kForm, kDim, 1>(cx, a);
  if (group == 2) return launch_team<kForm, kDim, 2>(cx, a);
  if (group <= 4) return launch_team<kForm, kDim, 4>(cx, a);
  return launch_team<kForm, kDim, kMostHeads>(cx, a);
}

template <Form kForm>
Status launch_form(OpContext& cx, const PageScoreArgs& a) {
  // A sphere's digest has a length that 16 does not divide.
  if constexpr (kForm != Form::kSphere) {
    if (a.kv.head_dim == 64) return launch_heads<kForm, 64>(cx, a);
    if (a.kv.head_dim == 128) return launch_heads<kForm, 128>(cx, a);
  }
  const uint32_t heads = std::min(kMostHeads, a.n_heads / a.kv.n_kv_heads);
  const dim3 grid(a.kv.n_kv_heads, parts_of(a, kBlock / kWarp));
  return launch("page_score", page_score_warp<kForm>, grid, kBlock, size_t{heads} * a.kv.head_dim * sizeof(float),
                stream_of(cx), true, a);
}

}  // namespace

Status page_score(OpContext& cx, const PageScoreArgs& a) {
  switch (form_of(a.kv.digest)) {
    case Form::kSphere:
      return launch_form<Form::kSphere>(cx, a);
    case Form::kMean:
      return launch_form<Form::kMean>(cx, a);
    case Form::kMeanStd:
      return launch_form<Form::kMeanStd>(cx, a);
    default:
      return launch_form<Form::kBound>(cx, a);
  }
}

}  // namespace weir::cuda
