// RaaS stamping in time linear in the pages: weights become integers of the same order, the threshold of the k best is
// found bit by bit, and ties at the threshold go to the lowest rows. Plain loops that the compiler vectorises; streams
// are too small for threads until there are thousands of pages.
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1),
// sec. 3.2; algorithms 2.6.
#include "cpu/page_stamp.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/memory.h"

namespace weir::cpu {
namespace {

// Pages (of all KV heads) up to which the calling thread does all of it.
constexpr size_t kSerialPages = 4096;

// Order of the weights in integers. Zeros of both signs are equal; what is not a number counts as -inf. 0 is below
// every weight.
uint32_t order_key(float weight) {
  const auto bits = std::bit_cast<uint32_t>(std::isnan(weight) ? -INFINITY : weight + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The same operations in the same order as the reference.
void group_weights(const PageStampArgs& a, uint32_t kv_head, float* score, uint32_t n) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const float* weight = a.weight + size_t{kv_head} * group * a.capacity;
  std::copy(weight, weight + n, score);
  for (uint32_t g = 1; g < group; ++g) {
    weight += a.capacity;
    if (a.rule == StampRule::kAlpha) {
      for (uint32_t row = 0; row < n; ++row) score[row] = std::max(score[row], weight[row]);
    } else {
      for (uint32_t row = 0; row < n; ++row) score[row] += weight[row];
    }
  }
  if (a.rule == StampRule::kAlpha) return;
  for (uint32_t row = 0; row < n; ++row) score[row] /= static_cast<float>(group);
}

uint32_t count_at_least(const uint32_t* key, uint32_t n, uint32_t threshold) {
  uint32_t count = 0;
  for (uint32_t row = 0; row < n; ++row) count += key[row] >= threshold ? 1u : 0u;
  return count;
}

// Stamps the n_best > 0 highest keys; at least so many are not 0.
void stamp_best(const uint32_t* key, uint32_t n, uint32_t n_best, uint32_t now, uint32_t* stamp) {
  uint32_t threshold = 0;  // the largest that n_best keys reach
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    const uint32_t count = count_at_least(key, n, threshold | bit);
    if (count >= n_best) threshold |= bit;
    if (count == n_best) break;
  }
  uint32_t n_ties = n_best;
  for (uint32_t row = 0; row < n; ++row) n_ties -= key[row] > threshold ? 1u : 0u;
  for (uint32_t row = 0; row < n; ++row) {
    const bool tie = key[row] == threshold && n_ties > 0;
    n_ties -= tie ? 1u : 0u;
    if (tie || key[row] > threshold) stamp[row] = now;
  }
}

// key: scratch [n_pages of the stream].
void stamp_stream(const PageStampArgs& a, uint32_t kv_head, uint32_t* key) {
  const uint32_t n = a.n_pages[kv_head];
  if (n == 0) return;
  const size_t table = size_t{kv_head} * a.capacity;
  const uint32_t* flags = a.flags + table;
  float* score = a.last_score + table;
  uint32_t* stamp = a.stamp + table;
  group_weights(a, kv_head, score, n);
  if (a.rule == StampRule::kAlpha) {
    for (uint32_t row = 0; row < n; ++row) stamp[row] = score[row] > a.alpha ? a.now : stamp[row];
  } else {
    uint32_t n_ranked = 0;
    for (uint32_t row = 0; row < n; ++row) {
      const bool ranked = a.rank_all || (row + 1 < n && (flags[row] & kPagePinned) == 0);
      key[row] = ranked ? order_key(score[row]) : 0;
      n_ranked += ranked ? 1u : 0u;
    }
    const auto n_best = std::min(n_ranked, static_cast<uint32_t>(std::ceil(a.r * static_cast<float>(n_ranked))));
    if (n_best > 0) stamp_best(key, n, n_best, a.now, stamp);
  }
  stamp[n - 1] = a.now;
}

}  // namespace

uint64_t page_stamp_scratch_bytes(const OpShapes& shapes) {
  return shapes.n_threads * align_up(uint64_t{shapes.max_pages} * sizeof(uint32_t), kCacheLine);
}

Status page_stamp(OpContext& cx, const PageStampArgs& a) {
  auto* keys = reinterpret_cast<uint32_t*>(cx.scratch);
  size_t n_pages = 0;
  for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) n_pages += a.n_pages[kv_head];
  if (n_pages <= kSerialPages) {
    for (uint32_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) stamp_stream(a, kv_head, keys);
    return {};
  }
  const size_t stride = align_up(uint64_t{a.capacity} * sizeof(uint32_t), kCacheLine) / sizeof(uint32_t);
  cx.pool->parallel_for(a.n_kv_heads, [&](size_t kv_head, size_t worker) {
    stamp_stream(a, static_cast<uint32_t>(kv_head), keys + worker * stride);
  });
  return {};
}

}  // namespace weir::cpu
