// Computes: estimates of q.k over pages from their digests.
// Launch: grid (KV heads, blocks along the capacity); blocks stride over the rows in use.
// Numerics: sums in f32, where the reference has f64.
// Traffic: each digest once for up to kMaxHeads heads of the group, in page_score_step once for all. These bytes bound
// the time of a step's estimates.
// Papers: as lib/ops/page_score_ref.cpp.
#include <algorithm>

#include "cuda/common/base.cuh"
#include "cuda/common/mma_bf16.cuh"
#include "cuda/common/team_sum.cuh"
#include "cuda/pages/page_score.cuh"
#include "cuda/pages/page_sketch.cuh"
#include "device/kernels/page_score_step.h"
#include "ops/page_score.h"
#include "ops/rope_append.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256;
constexpr uint32_t kMaxHeads = 8;  // per pass over the digests; their queries are in registers
// Six blocks for each of 132 SMs, so that the loads of one block hide the latency of another.
constexpr uint32_t kBlocksWanted = 792;
constexpr uint32_t kLaneChannels = 8;  // one 16-byte load
constexpr uint32_t kInFlight = 2;      // rows that a team of lanes loads before it computes

constexpr uint32_t kStepBlock = 256;
constexpr uint32_t kStepBlocks = 264;  // of page_score_step: two for each of 132 SMs
constexpr uint32_t kTileRows = 16;     // per warp; 2048 pages of 8 KV heads are in flight at once
constexpr uint32_t kTilePad = 32;      // elements; the padding puts the rows of the query into different banks
constexpr uint32_t kStepRows = 4;      // per team of lanes

// The estimates by their formula; kMinMax and kCuboidMean share one.
enum class Form : uint8_t { kBound, kMean, kMeanStd, kSphere };

Form form_of(DigestKind kind) {
  switch (kind) {
    case DigestKind::kSphereMean:
      return Form::kSphere;
    case DigestKind::kCentroid:
      return Form::kMean;
    case DigestKind::kMeanStd:
      return Form::kMeanStd;
    case DigestKind::kMinMax:
    case DigestKind::kCuboidMean:
    case DigestKind::kNone:    // a policy that scores pages has digests
    case DigestKind::kSketch:  // page_sketch.cu
      break;
  }
  return Form::kBound;
}

struct Rows {
  const PageScoreArgs& a;
  uint32_t kv_head, n;

  __device__ Rows(const PageScoreArgs& args, uint32_t head) : a(args), kv_head(head), n(args.kv.n_pages[head]) {}
  // Number of a row's digest.
  __device__ size_t digest(uint32_t row) const { return a.kv.digest_index(kv_head, row); }
  __device__ bool has_digest(uint32_t row) const {
    return row + 1 < n || a.kv.digest == DigestKind::kMinMax ||
           a.kv.len[size_t{kv_head} * a.kv.capacity + row] == kPageTokens;
  }
  __device__ void store(uint32_t head, uint32_t row, float score) const {
    a.score[size_t{head} * a.kv.capacity + row] = has_digest(row) ? score : -INFINITY;
  }
};

// What one channel adds to the estimate; `first` and `second` come from the digest's halves.
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

// Digests with halves of kDim channels, 64 or 128: a team of kDim / 8 lanes takes a row; each lane takes 8 channels for
// all kHeads heads.
template <Form kForm, uint32_t kDim, uint32_t kHeads>
__global__ void __launch_bounds__(kBlock) page_score_team(const PageScoreArgs a) {
  constexpr uint32_t kLanes = kDim / kLaneChannels, kTeams = kBlock / kLanes;
  constexpr bool kTwo = kForm != Form::kMean;  // halves
  constexpr size_t kVectors = (kTwo ? 2 : 1) * kLanes;
  wait_for_previous();
  start_next();
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
    // All lanes of a warp stay in the loop, because the shuffles need them. Rows beyond the last repeat it and are not
    // stored.
    for (uint32_t base = first_row; base < rows.n; base += gridDim.y * kTeams * kInFlight) {
      uint4 half[kInFlight][2];
      size_t at[kInFlight];
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) at[i] = rows.digest(min(base + i * kTeams + team, rows.n - 1));
#pragma unroll
      for (uint32_t i = 0; i < kInFlight; ++i) {
        const uint4* digest = digests + at[i] * kVectors + lane;
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

// Normalises and rotates the query heads of a KV head, one head per warp at a time, and calls store(head, channel, x);
// `head` counts from the KV head's first.
template <uint32_t kDim, class Store>
__device__ inline void rotate_queries(const PageScoreArgs& a, const RopeAppendArgs& rope, uint32_t kv_head,
                                      const Store& store) {
  constexpr uint32_t kPairs = kDim / 2 / kWarp;  // of a lane
  const uint32_t lane = threadIdx.x % kWarp, group = a.n_heads / a.kv.n_kv_heads, half = rope.rope_dim / 2;
  // Channels of each pair, and its rotation: pairs that rotate come first, then channels that pass through.
  uint32_t first[kPairs], second[kPairs];
  float cosine[kPairs], sine[kPairs], first_norm[kPairs], second_norm[kPairs];
#pragma unroll
  for (uint32_t i = 0; i < kPairs; ++i) {
    const uint32_t pair = i * kWarp + lane;
    const bool turns = pair < half, adjacent = !turns || rope.layout == RopeLayout::kAdjacent;
    first[i] = adjacent ? 2 * pair : pair;
    second[i] = adjacent ? 2 * pair + 1 : pair + half;
    cosine[i] = turns ? rope.cos_sin[2 * pair] : 1.0f;
    sine[i] = turns ? rope.cos_sin[2 * pair + 1] : 0.0f;
    first_norm[i] = rope.q_norm != nullptr ? rope.q_norm[first[i]] : 1.0f;
    second_norm[i] = rope.q_norm != nullptr ? rope.q_norm[second[i]] : 1.0f;
  }
  wait_for_previous();
  start_next();
  for (uint32_t head = threadIdx.x / kWarp; head < group; head += kStepBlock / kWarp) {
    const float* from = a.q + size_t{kv_head * group + head} * kDim;
    float x[kPairs], y[kPairs], square = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) x[i] = from[first[i]], y[i] = from[second[i]];
    if (rope.q_norm != nullptr) {
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) square = fmaf(x[i], x[i], fmaf(y[i], y[i], square));
      const float inverse = 1.0f / sqrtf(warp_sum(square) / kDim + rope.norm_eps);
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) x[i] *= inverse * first_norm[i], y[i] *= inverse * second_norm[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) {
      store(head, first[i], x[i] * cosine[i] - y[i] * sine[i]);
      store(head, second[i], x[i] * sine[i] + y[i] * cosine[i]);
    }
  }
}

// kBound and kMean of a decode step as an MMA on tensor cores: [heads, halves of a digest] by [halves, rows]. The
// positive channels of the query are multiplied with the first half of a digest, the negative ones with the second. An
// f32 query is split into three bf16 without loss, each a row of the MMA: row 4s + g is part s of head g, and the last
// four rows are unused. A warp takes 16 rows of the table at a time; their digests are prefetched before the query is
// there.
template <Form kForm, uint32_t kDim>
__global__ void __launch_bounds__(kStepBlock, 2) page_score_step_tiles(const PageScoreStepArgs args) {
  constexpr uint32_t kChannels = (kForm == Form::kBound ? 2 : 1) * kDim, kStride = kChannels + kTilePad;
  constexpr uint32_t kLaneVectors = kChannels / kLaneChannels / 4, kWarps = kStepBlock / kWarp;
  extern __shared__ uint4 tiles[];
  auto* parts = reinterpret_cast<uint16_t*>(tiles);  // [heads / 4, 16, kStride]
  const PageScoreArgs& a = args.op;
  const uint32_t lane = threadIdx.x % kWarp, kv_head = blockIdx.x, group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t n = a.kv.n_pages[kv_head], stride = gridDim.y * kWarps * kTileRows;
  const auto* digests = reinterpret_cast<const uint4*>(a.kv.digests);
  if (blockIdx.y * kTileRows >= n) {
    wait_for_previous();
    return;
  }
  uint4 digest[2][kLaneVectors];
  const auto load = [&](uint32_t first) {
    uint32_t at[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t row = first + 8 * i + lane / 4;
      at[i] = row + 1 < n ? static_cast<uint32_t>(a.kv.digest_index(kv_head, row)) : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const bool is_read = first + 8 * i + lane / 4 + 1 < n;
      const uint4* from = digests + size_t{at[i]} * (kChannels / kLaneChannels) + lane % 4;
#pragma unroll
      for (uint32_t v = 0; v < kLaneVectors; ++v) digest[i][v] = is_read ? from[4 * v] : uint4{};
    }
  };
  uint32_t first = (threadIdx.x / kWarp * gridDim.y + blockIdx.y) * kTileRows;
  load(first);
  rotate_queries<kDim>(a, args.rope, kv_head, [&](uint32_t head, uint32_t channel, float x) {
    uint16_t* to = parts + (head / 4 * kTileRows + head % 4) * kStride + channel;
#pragma unroll
    for (uint32_t half = 0; half < kChannels / kDim; ++half) {
      float rest = kForm != Form::kBound ? x : half == 0 ? fmaxf(x, 0.0f) : fminf(x, 0.0f);
#pragma unroll
      for (uint32_t part = 0; part < 3; ++part) {
        const uint16_t rounded = float_to_bf16(rest);
        to[4 * part * kStride + half * kDim] = rounded;
        rest -= bf16_to_float(rounded);
      }
    }
  });
  __syncthreads();
  for (; first < n;) {
    for (uint32_t first_head = 0; first_head < group; first_head += 4) {
      // Even and odd steps have sums of their own, so that an MMA does not wait for the one before it.
      float sum[2][2][4] = {};
      const uint4* low = tiles + (first_head * 4 + lane / 4) * (kStride / kLaneChannels) + lane % 4;
#pragma unroll
      for (uint32_t v = 0; v < kLaneVectors; ++v) {
        const uint4 q0 = low[4 * v], q8 = low[4 * v + 8 * (kStride / kLaneChannels)];
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
          const uint32_t head = first_head + lane / 4, row = first + 8 * i + lane % 4 * 2 + column;
          if (lane < 16 && head < group && row < n)
            a.score[size_t{kv_head * group + head} * a.kv.capacity + row] = row + 1 < n ? score : -INFINITY;
        }
      }
    }
    first += stride;
    if (first < n) load(first);
  }
}

// kMeanStd of a decode step, as page_score_team. The rows are dealt out so that even few pages are spread over all
// blocks and many are loaded at once.
template <uint32_t kDim, uint32_t kHeads>
__global__ void __launch_bounds__(kStepBlock, 2) page_score_step_team(const PageScoreStepArgs args) {
  constexpr uint32_t kLanes = kDim / kLaneChannels, kTeams = kStepBlock / kLanes;
  constexpr size_t kVectors = 2 * kLanes;
  // Sums that are reduced together: as many as a team has lanes, so that every lane ends up with one.
  constexpr uint32_t kJoint = kLanes / kHeads < kStepRows ? kLanes / kHeads : kStepRows;
  extern __shared__ __align__(16) float queries[];
  const PageScoreArgs& a = args.op;
  const uint32_t lane = threadIdx.x % kLanes, kv_head = blockIdx.x, group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t n = a.kv.n_pages[kv_head], stride = gridDim.y * kTeams, first_row = blockIdx.y * kTeams;
  const auto* digests = reinterpret_cast<const uint4*>(a.kv.digests);
  if (first_row >= n) {
    wait_for_previous();
    return;
  }
  uint4 half[kStepRows][2];
  const auto load = [&](uint32_t row) {
    size_t at[kStepRows];
#pragma unroll
    for (uint32_t i = 0; i < kStepRows; ++i)
      at[i] = row + i * stride < n ? a.kv.digest_index(kv_head, row + i * stride) : 0;
#pragma unroll
    for (uint32_t i = 0; i < kStepRows; ++i) {
      const uint4* digest = digests + at[i] * kVectors + lane;
      const bool is_row = row + i * stride < n;
      half[i][0] = is_row ? digest[0] : uint4{};
      half[i][1] = is_row ? digest[kLanes] : uint4{};
    }
  };
  uint32_t row = first_row + threadIdx.x / kLanes;
  load(row);
  rotate_queries<kDim>(a, args.rope, kv_head,
                       [&](uint32_t head, uint32_t channel, float x) { queries[head * kDim + channel] = x; });
  __syncthreads();
  // All lanes of a warp stay in the loop, because the shuffles need them.
  for (uint32_t base = first_row;;) {
    for (uint32_t first_head = 0; first_head < group; first_head += kHeads) {
      float by_mean[kHeads][kLaneChannels], by_variance[kHeads][kLaneChannels];
#pragma unroll
      for (uint32_t g = 0; g < kHeads; ++g) {
        const auto* from = reinterpret_cast<const float4*>(queries + min(first_head + g, group - 1) * kDim) + lane * 2;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
          const float4 v = from[i];
          const float q[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
          for (uint32_t c = 0; c < 4; ++c) {
            by_mean[g][4 * i + c] = q[c];
            by_variance[g][4 * i + c] = q[c] * q[c];
          }
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kStepRows; i += kJoint) {
        if (base + i * stride >= n) continue;
        float sum[kJoint * kHeads] = {}, square[kJoint * kHeads] = {};
#pragma unroll
        for (uint32_t j = 0; j < kJoint; ++j) {
#pragma unroll
          for (uint32_t c = 0; c < kLaneChannels; ++c) {
            const float mean = low_or_high(half[i + j][0], c), deviation = low_or_high(half[i + j][1], c);
#pragma unroll
            for (uint32_t g = 0; g < kHeads; ++g) {
              sum[j * kHeads + g] = fmaf(by_mean[g][c], mean, sum[j * kHeads + g]);
              square[j * kHeads + g] = fmaf(by_variance[g][c], deviation * deviation, square[j * kHeads + g]);
            }
          }
        }
        const float score = team_sum<kLanes>(sum, lane) + a.spread * sqrtf(team_sum<kLanes>(square, lane));
        const uint32_t head = first_head + lane % kHeads, to = row + (i + lane / kHeads) * stride;
        if (lane < kJoint * kHeads && head < group && to < n)
          a.score[size_t{kv_head * group + head} * a.kv.capacity + to] = to + 1 < n ? score : -INFINITY;
      }
    }
    base += kStepRows * stride;
    row += kStepRows * stride;
    if (base >= n) break;
    load(row);
  }
}

// Any even head_dim and any kind: one row per warp. The queries of up to kMaxHeads heads, [kMaxHeads, head_dim], and
// their norms are in shared memory.
template <Form kForm>
__global__ void __launch_bounds__(kBlock) page_score_warp(const PageScoreArgs a) {
  extern __shared__ float q[];
  __shared__ float norm[kMaxHeads];
  wait_for_previous();
  start_next();
  const Rows rows(a, blockIdx.x);
  const uint32_t d = a.kv.head_dim, group = a.n_heads / a.kv.n_kv_heads;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, n_warps = kBlock / kWarp;
  const uint32_t n_elements = kForm == Form::kSphere ? d + 2 : kForm == Form::kMean ? d : 2 * d;
  if (blockIdx.y * n_warps >= rows.n) return;
  for (uint32_t first_head = 0; first_head < group; first_head += kMaxHeads) {
    const uint32_t n_heads = min(kMaxHeads, group - first_head);
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
      const auto* digest = reinterpret_cast<const uint32_t*>(a.kv.digests + rows.digest(row) * n_elements);
      float sum[kMaxHeads] = {}, square[kMaxHeads] = {};
      for (uint32_t i = lane; i < d / 2; i += kWarp) {
        const uint32_t first = digest[i];
        const uint32_t second = kForm == Form::kBound || kForm == Form::kMeanStd ? digest[d / 2 + i] : 0;
#pragma unroll
        for (uint32_t g = 0; g < kMaxHeads; ++g) {
          if (g >= n_heads) break;
          const float* pair = q + g * d + 2 * i;
          add_channel<kForm>(pair[0], bf16_low(first), bf16_low(second), sum[g], square[g]);
          add_channel<kForm>(pair[1], bf16_high(first), bf16_high(second), sum[g], square[g]);
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < kMaxHeads; ++g) {
        if (g >= n_heads) break;
        float score = warp_sum(sum[g]);
        if (kForm == Form::kMeanStd) score += a.spread * sqrtf(warp_sum(square[g]));
        if (kForm == Form::kSphere) score += bf16_low(digest[d / 2]) * norm[g];
        if (lane == 0) rows.store(rows.kv_head * group + first_head + g, row, score);
      }
    }
  }
}

// Blocks per KV head, each striding over the rows by `block_rows` at a time.
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
  return launch_team<kForm, kDim, kMaxHeads>(cx, a);
}

template <Form kForm>
Status launch_form(OpContext& cx, const PageScoreArgs& a) {
  // A sphere's digest is not a multiple of 16 bytes long.
  if constexpr (kForm != Form::kSphere) {
    if (a.kv.head_dim == 64) return launch_heads<kForm, 64>(cx, a);
    if (a.kv.head_dim == 128) return launch_heads<kForm, 128>(cx, a);
  }
  const uint32_t heads = std::min(kMaxHeads, a.n_heads / a.kv.n_kv_heads);
  const dim3 grid(a.kv.n_kv_heads, parts_of(a, kBlock / kWarp));
  return launch("page_score", page_score_warp<kForm>, grid, kBlock, size_t{heads} * a.kv.head_dim * sizeof(float),
                stream_of(cx), true, a);
}

// Blocks per KV head in a decode step, for `block_rows` rows each.
uint32_t step_parts(const PageScoreArgs& a, uint32_t block_rows) {
  return std::clamp((a.kv.capacity + block_rows - 1) / block_rows, 1u, std::max(1u, kStepBlocks / a.kv.n_kv_heads));
}

template <Form kForm, uint32_t kDim>
Status launch_step_tiles(OpContext& cx, const PageScoreStepArgs& a) {
  const dim3 grid(a.op.kv.n_kv_heads, step_parts(a.op, kStepBlock / kWarp * kTileRows));
  const uint32_t channels = (kForm == Form::kBound ? 2 : 1) * kDim, group = a.op.n_heads / a.op.kv.n_kv_heads;
  const size_t query_bytes = size_t{(group + 3) / 4} * kTileRows * (channels + kTilePad) * sizeof(uint16_t);
  return launch("page_score_step", page_score_step_tiles<kForm, kDim>, grid, kStepBlock, query_bytes, stream_of(cx),
                a.overlap, a);
}

template <uint32_t kDim, uint32_t kHeads>
Status launch_step_team(OpContext& cx, const PageScoreStepArgs& a) {
  const dim3 grid(a.op.kv.n_kv_heads, step_parts(a.op, kStepBlock / (kDim / kLaneChannels)));
  const size_t query_bytes = size_t{a.op.n_heads / a.op.kv.n_kv_heads} * kDim * sizeof(float);
  return launch("page_score_step", page_score_step_team<kDim, kHeads>, grid, kStepBlock, query_bytes, stream_of(cx),
                a.overlap, a);
}

template <uint32_t kDim>
Status launch_step(OpContext& cx, const PageScoreStepArgs& a) {
  const uint32_t group = a.op.n_heads / a.op.kv.n_kv_heads;
  const Form form = form_of(a.op.kv.digest);
  if (form == Form::kBound) return launch_step_tiles<Form::kBound, kDim>(cx, a);
  if (form == Form::kMean) return launch_step_tiles<Form::kMean, kDim>(cx, a);
  if (group == 1) return launch_step_team<kDim, 1>(cx, a);
  if (group == 2) return launch_step_team<kDim, 2>(cx, a);
  return launch_step_team<kDim, 4>(cx, a);
}

}  // namespace

Status page_score(OpContext& cx, const PageScoreArgs& a) {
  if (a.kv.digest == DigestKind::kSketch) return sketch_score(cx, a);
  switch (form_of(a.kv.digest)) {
    case Form::kSphere:
      return launch_form<Form::kSphere>(cx, a);
    case Form::kMean:
      return launch_form<Form::kMean>(cx, a);
    case Form::kMeanStd:
      return launch_form<Form::kMeanStd>(cx, a);
    case Form::kBound:
      return launch_form<Form::kBound>(cx, a);
  }
  return fail(WEIR_ERR_INTERNAL, "page_score: digests of kind %u", static_cast<uint32_t>(a.kv.digest));
}

Status page_score_step(OpContext& cx, const PageScoreStepArgs& a) {
  if (!has_page_score_step(a.op.kv.digest, a.op.kv.head_dim, a.op.n_heads / a.op.kv.n_kv_heads))
    return fail(WEIR_ERR_INTERNAL, "page_score_step: not for digests, heads or groups of this kind");
  return a.op.kv.head_dim == 64 ? launch_step<64>(cx, a) : launch_step<128>(cx, a);
}

}  // namespace weir::cuda
