// Computes: token_mass.
// Launch: grid (KV heads, blocks along the capacity). A warp has kTokens tokens of a page, holds their keys in
// registers, and goes over the query rows and heads.
// Numerics: dot products in f32, each split over the lanes; masses are summed in the reference's order.
// Traffic: keys once; queries once per warp, mostly from the caches.
// Papers: as lib/ops/token_mass_ref.cpp.
#include <algorithm>

#include "cuda/common/base.cuh"
#include "cuda/common/team_sum.cuh"
#include "cuda/ops.h"
#include "cuda/pages/kv_rows.cuh"
#include "ops/token_mass.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 128;
constexpr uint32_t kTokens = 8;                // half a page: with heads of 256 channels the keys take 64 registers
constexpr uint32_t kWarpChannels = 2 * kWarp;  // channels that a warp covers at a time, a pair per lane

template <bool kCapped>
__device__ float logit_of(const TokenMassArgs& a, float dot) {
  const float logit = __fmul_rn(a.scale, dot);
  return kCapped ? a.soft_cap * tanhf(logit / a.soft_cap) : logit;
}

// head_dim <= kPairs * kWarpChannels. kCapped: the logits have a soft cap.
template <KvFormat kFormat, uint32_t kPairs, bool kCapped>
__global__ void __launch_bounds__(kBlock) token_mass_kernel(const TokenMassArgs a) {
  start_next();
  wait_for_previous();
  const uint32_t lane = threadIdx.x % kWarp, kv_head = blockIdx.x, d = a.kv.head_dim;
  const uint32_t part = blockIdx.y * (kBlock / kWarp) + threadIdx.x / kWarp;
  const uint32_t page = part / (kPageTokens / kTokens), first = part % (kPageTokens / kTokens) * kTokens;
  if (page >= a.kv.n_pages[kv_head]) return;
  const size_t at = size_t{kv_head} * a.kv.capacity + page;
  const uint32_t len = a.kv.len[at];
  if (first >= len) return;
  const uint16_t* page_at = a.kv.pool + size_t{a.kv.slots[at]} * a.kv.page_elements();
  const auto keys = keys_at<kFormat>(page_at, d);
  const uint16_t* open = nullptr;
  if (kFormat != KvFormat::kBf16 && a.kv.is_open(kv_head, page)) open = a.kv.open_page(kv_head, page);
  float key[kTokens][2 * kPairs];
#pragma unroll
  for (uint32_t t = 0; t < kTokens; ++t) {
#pragma unroll
    for (uint32_t j = 0; j < kPairs; ++j) {
      const uint32_t i = 2 * lane + j * kWarpChannels;
      const bool is_there = first + t < len && i < d;
      if constexpr (kFormat == KvFormat::kBf16) {
        const uint32_t pair = is_there ? *reinterpret_cast<const uint32_t*>(keys.codes(first + t) + i) : 0u;
        key[t][2 * j] = bf16_low(pair);
        key[t][2 * j + 1] = bf16_high(pair);
      } else {
        const auto at_channel = [&](uint32_t channel) {
          if (!is_there) return 0.0f;
          return open != nullptr ? bf16_to_float(open[(first + t) * d + channel]) : keys.at(first + t, channel);
        };
        key[t][2 * j] = at_channel(i);
        key[t][2 * j + 1] = at_channel(i + 1);
      }
    }
  }
  // Query rows before the first token do not see it.
  const uint32_t group = a.n_heads / a.kv.n_kv_heads, begin = a.kv.first_pos[at] + first;
  const uint32_t mine = lane % kTokens;  // the token whose sum ends up in this lane
  float mass = 0.0f;
  for (uint32_t r = begin > a.pos ? begin - a.pos : 0; r < a.n_rows; ++r) {
#pragma unroll 2
    for (uint32_t g = 0; g < group; ++g) {
      const size_t head = size_t{r} * a.n_heads + kv_head * group + g;
      float dot[kTokens] = {};
#pragma unroll
      for (uint32_t j = 0; j < kPairs; ++j) {
        const uint32_t i = 2 * lane + j * kWarpChannels;
        const float2 q = i < d ? *reinterpret_cast<const float2*>(a.q + head * d + i) : float2{0.0f, 0.0f};
#pragma unroll
        for (uint32_t t = 0; t < kTokens; ++t) dot[t] = fmaf(q.y, key[t][2 * j + 1], fmaf(q.x, key[t][2 * j], dot[t]));
      }
      const float sum = team_sum<kWarp>(dot, lane);
      const uint32_t token = begin + mine, row_pos = a.pos + r;
      if (token <= row_pos && (a.window == 0 || row_pos - token < a.window))
        mass += expf(logit_of<kCapped>(a, sum) - a.lse[head]);
    }
  }
  if (lane < kTokens && first + lane < len) a.mass[at * kPageTokens + first + lane] = mass;
}

template <uint32_t kPairs, bool kCapped = false>
Status launch_pairs(OpContext& cx, const TokenMassArgs& a) {
  constexpr uint32_t kBlockTokens = kBlock / kWarp * kTokens;
  const dim3 grid(a.kv.n_kv_heads, (a.kv.capacity * kPageTokens + kBlockTokens - 1) / kBlockTokens);
  return with_key_format(a.kv.format, [&](auto format) {
    return launch("token_mass", token_mass_kernel<format(), kPairs, kCapped>, grid, kBlock, 0, stream_of(cx), true, a);
  });
}

}  // namespace

Status token_mass(OpContext& cx, const TokenMassArgs& a) {
  if (a.kv.head_dim % 2 != 0)
    return fail(WEIR_ERR_UNSUPPORTED, "token_mass: heads of %u channels, not an even number", a.kv.head_dim);
  if (a.kv.head_dim > 4 * kWarpChannels)
    return fail(WEIR_ERR_UNSUPPORTED, "token_mass: heads of %u channels; %u is the most", a.kv.head_dim,
                4 * kWarpChannels);
  // Few models have a soft cap: one kernel for all sizes of their heads.
  if (a.soft_cap != 0.0f) return launch_pairs<4, true>(cx, a);
  if (a.kv.head_dim <= kWarpChannels) return launch_pairs<1>(cx, a);
  if (a.kv.head_dim <= 2 * kWarpChannels) return launch_pairs<2>(cx, a);
  return launch_pairs<4>(cx, a);
}

}  // namespace weir::cuda
