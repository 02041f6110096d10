// RaaS stamping in time linear in the pages. Streams are too small for threads until there are thousands of pages.
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1),
// sec. 3.2; docs/algorithms.md, "RaaS".
#include "cpu/page_stamp.h"

#include <algorithm>
#include <cmath>

#include "core/memory.h"
#include "cpu/top_keys.h"

namespace weir::cpu {
namespace {

// Pages (of all KV heads) up to which the calling thread does all of the work.
constexpr size_t kSerialPages = 4096;

// The same operations in the same order as the reference.
void group_weights(const PageStampArgs& a, uint32_t kv_head, float* score, uint32_t n) {
  const uint32_t group = a.n_heads / a.n_kv_heads;
  const float* weight = a.weight + size_t{kv_head} * group * a.capacity;
  std::copy(weight, weight + n, score);
  for (uint32_t g = 1; g < group; ++g) {
    weight += a.capacity;
    if (stamps_by_threshold(a.rule)) {
      for (uint32_t row = 0; row < n; ++row) score[row] = std::max(score[row], weight[row]);
    } else {
      for (uint32_t row = 0; row < n; ++row) score[row] += weight[row];
    }
  }
  if (stamps_by_threshold(a.rule)) return;
  for (uint32_t row = 0; row < n; ++row) score[row] /= static_cast<float>(group);
}

// Moves the weights of listed pages to their table rows; the other rows get 0. It goes from the end, because a row is
// never below its list index.
void spread_weights(const uint32_t* select, uint32_t n_select, float* score, uint32_t n) {
  uint32_t row = n;
  for (uint32_t place = n_select; place-- > 0;) {
    const float weight = score[place];
    while (row > select[place] + 1) score[--row] = 0.0f;
    score[--row] = weight;
  }
  while (row > 0) score[--row] = 0.0f;
}

// key: scratch [n_pages of the stream].
void stamp_stream(const PageStampArgs& a, uint32_t kv_head, uint32_t* key) {
  const uint32_t n = a.n_pages[kv_head];
  if (n == 0) return;
  const size_t table = size_t{kv_head} * a.capacity;
  const uint32_t* flags = a.flags + table;
  float* score = a.last_score + table;
  group_weights(a, kv_head, score, a.select != nullptr ? a.n_select[kv_head] : n);
  if (a.select != nullptr) spread_weights(a.select + table, a.n_select[kv_head], score, n);
  if (stamps_by_threshold(a.rule)) {
    for (uint32_t row = 0; row + 1 < n; ++row) {
      if (score[row] > a.alpha) a.hit(table + row, a.now);
    }
  } else {
    uint32_t n_ranked = 0;
    for (uint32_t row = 0; row < n; ++row) {
      const bool ranked = a.rank_all || (row + 1 < n && (flags[row] & kPageStays) == 0);
      key[row] = ranked ? order_key(score[row]) : 0;
      n_ranked += ranked ? 1u : 0u;
    }
    const auto n_best = std::min(n_ranked, static_cast<uint32_t>(std::ceil(a.r * static_cast<float>(n_ranked))));
    if (n_best > 0) for_best(key, n, n_best, [&](uint32_t row) { a.hit(table + row, a.now); });
  }
  a.hit(table + n - 1, a.now);
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
