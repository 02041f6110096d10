// The op page_digest: digests of pages that are full.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// The digest of the first `len` keys of a page, any kind but kNone; out has digest_elements. Statistics are computed in
// f32 and rounded to nearest once.
void digest_page(DigestKind kind, const PagePart<const uint16_t>& keys, uint32_t len, uint16_t* out);
// The same of keys [len, head_dim] in bf16.
inline void digest_page(DigestKind kind, const uint16_t* keys, uint32_t len, size_t head_dim, uint16_t* out) {
  digest_page(kind, keys_in(KvFormat::kBf16, keys, head_dim), len, out);
}

// Digests of the sealed pages among the `n_rows` table rows from first_row[kv_head] on, for kinds that need whole
// pages.
struct PageDigestArgs {
  KvView kv;
  const uint32_t* first_row;  // [n_kv_heads]
  uint32_t n_rows;            // rows beyond n_pages, and pages that are not full, are skipped
};

}  // namespace weir
