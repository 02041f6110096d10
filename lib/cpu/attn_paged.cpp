// Paged attention: selects the implementation and checks its scratch memory. Head dimensions that are not a multiple of
// 8 go to the reference.
#include "cpu/attn_paged.h"

#include <algorithm>

#include "cpu/attn_paged_parts.h"
#include "cpu/attn_tokens.h"

namespace weir::cpu {
namespace {

uint64_t decode_bytes(uint64_t n_threads, uint64_t n_heads, uint64_t n_kv_heads, uint64_t head_dim,
                      uint64_t max_pages) {
  Arena measure;
  lay_out_decode(measure, n_threads, n_heads, n_kv_heads, head_dim, max_pages);
  return measure.used();
}

uint64_t prefill_bytes(uint64_t n_threads, uint64_t n_tok, uint64_t group, uint64_t head_dim) {
  Arena measure;
  lay_out_prefill(measure, n_tok, group, head_dim);
  return n_threads * measure.used();
}

}  // namespace

uint64_t attn_scratch_bytes(const OpShapes& s) {
  if (s.n_kv_heads == 0) return 0;
  return std::max(decode_bytes(s.n_threads, s.n_heads, s.n_kv_heads, s.head_dim, s.max_pages),
                  prefill_bytes(s.n_threads, s.max_tok, s.n_heads / s.n_kv_heads, s.head_dim));
}

Status attn_paged(OpContext& cx, const AttnPagedArgs& a) {
  // Sessions have lists per head in decode steps only; a chunk with such lists comes from a test.
  if (a.tokens.n != 0 && a.kv.head_dim % 8 == 0 && attn_has_kernels()) return attn_tokens(cx, a);
  if (a.kv.head_dim % 8 != 0 || !attn_has_kernels() || (a.list_per_head && a.n_tok > 1)) return ref::attn_paged(cx, a);
  uint32_t most = 0;
  for (uint32_t list = 0; list < n_lists(a); ++list) most = std::max(most, n_listed(a, list));
  const uint32_t n_threads = cx.pool->n_threads();
  const bool decodes = a.n_tok == 1 && a.carry == nullptr;
  const uint64_t needed = decodes ? decode_bytes(n_threads, a.n_heads, a.kv.n_kv_heads, a.kv.head_dim, most)
                                  : prefill_bytes(n_threads, a.n_tok, a.n_heads / a.kv.n_kv_heads, a.kv.head_dim);
  if (needed > cx.scratch_bytes) {
    return fail(WEIR_ERR_INTERNAL, "attn_paged: %llu bytes of scratch, %llu needed",
                static_cast<unsigned long long>(cx.scratch_bytes), static_cast<unsigned long long>(needed));
  }
  if (decodes) {
    attn_decode(cx, a);
  } else {
    attn_prefill(cx, a);
  }
  return {};
}

}  // namespace weir::cpu
