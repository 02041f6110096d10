// Page digests on the CPU: the reference's loops; streams are divided among threads when a prompt seals many pages at
// once. A page is digested once in its life, which is a percent of the work on its keys.
#include "cpu/page_digest.h"

#include <algorithm>

#include "ops/table.h"

namespace weir::cpu {
namespace {

// Digests (pages times KV heads) up to which the calling thread does all of the work: some microseconds each.
constexpr size_t kSerialPages = 4;

}  // namespace

Status page_digest(OpContext& cx, const PageDigestArgs& a) {
  const uint32_t n_kv_heads = a.kv.n_kv_heads;
  if (size_t{a.n_rows} * n_kv_heads <= kSerialPages) return ref::page_digest(cx, a);
  cx.pool->parallel_for(size_t{a.n_rows} * n_kv_heads, [&](size_t task, size_t) {
    const auto kv_head = static_cast<uint32_t>(task % n_kv_heads);
    const uint32_t row = a.first_row[kv_head] + static_cast<uint32_t>(task / n_kv_heads);
    if (row >= a.kv.n_pages[kv_head] || a.kv.len[size_t{kv_head} * a.kv.capacity + row] < kPageTokens) return;
    digest_page(a.kv.digest, a.kv.keys_of(kv_head, row), kPageTokens, a.kv.digest_of(kv_head, row));
  });
  return {};
}

}  // namespace weir::cpu
