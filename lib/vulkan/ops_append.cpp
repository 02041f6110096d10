// Appending of keys and values to KV pages, and the pages' digests.
#include "device/kernels/rope_append_at.h"
#include "ops/page_digest.h"
#include "ops/rope_append.h"
#include "shaders/attn.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

static_assert(kPageRows == kPageTokens && kUnitPages == kSplitPages);
static_assert(kNoSlotWord == kNoSlot);

// Work for so many workgroups; fewer take more each.
uint32_t groups_of(uint64_t n) { return static_cast<uint32_t>(std::min<uint64_t>(n, kMaxGroups)); }

// `n_tokens`: device memory with the position, or null.
Status append(const RopeAppendArgs& a, const uint32_t* n_tokens) {
  WEIR_TRY(check_pages(a.kv, a.n_heads));
  if (a.rope_dim % 2 != 0 || a.rope_dim > a.kv.head_dim)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: rotation of %u of %u elements", a.rope_dim, a.kv.head_dim);
  if (a.n_tok == 0) return {};
  const uint64_t n = a.n_tok, d = a.kv.head_dim, q = float_bytes(n * a.n_heads * d),
                 k = float_bytes(n * a.kv.n_kv_heads * d), angles = float_bytes(n * a.rope_dim);
  const bool has_digests = a.kv.digest == DigestKind::kMinMax;
  Touches t;
  RopeArgs push = {};
  push.q = t.writes(a.q, q);
  push.q_sink = t.writes(a.q_sink, q);
  push.k = t.writes(a.k, k);
  push.v = t.reads(a.v, k);
  push.q_norm = t.reads(a.q_norm, float_bytes(d));
  push.k_norm = t.reads(a.k_norm, float_bytes(d));
  if (a.rope_dim != 0) push.cos_sin = t.reads(a.cos_sin, angles);
  if (a.rope_dim != 0 && a.q_sink != nullptr) push.cos_sin_sink = t.reads(a.cos_sin_sink, angles);
  push.pool = t.writes(a.kv.pool, bytes_from(a.kv.pool));
  if (has_digests) push.digests = t.writes(a.kv.digests, digest_bytes(a.kv));
  push.slots = t.reads(a.kv.slots, row_bytes(a.kv));
  push.first_pos = t.reads(a.kv.first_pos, row_bytes(a.kv));
  push.append_row = t.reads(a.append_row, stream_bytes(a.kv));
  push.n_tokens = t.reads(n_tokens, sizeof(uint32_t));
  push.n_tok = a.n_tok;
  push.n_heads = a.n_heads;
  push.n_kv_heads = a.kv.n_kv_heads;
  push.head_dim = a.kv.head_dim;
  push.rope_dim = a.rope_dim;
  push.is_adjacent = a.layout == RopeLayout::kAdjacent ? 1 : 0;
  push.pos = a.pos;
  push.capacity = a.kv.capacity;
  push.digest_by_row = a.kv.digest_by_row ? 1 : 0;
  push.norm_eps = a.norm_eps;
  const uint64_t n_pages = (n + 2 * kPageTokens - 2) / kPageTokens;
  return context().dispatch(Kernel::kRopeAppend, WeightType::kF32, {1}, push, t,
                            {groups_of(n_pages * a.kv.n_kv_heads + groups_for(a.n_tok * a.n_heads))});
}

// `first_row`: null for the last row of each stream.
Status digest(const KvView& kv, const uint32_t* first_row, uint32_t n_rows) {
  WEIR_TRY(check_pages(kv, kv.n_kv_heads));
  if (kv.digest == DigestKind::kNone) return fail(WEIR_ERR_INTERNAL, "Vulkan: digests of no kind");
  if (n_rows == 0) return {};
  Touches t;
  const PageDigestPush push = {.digests = t.writes(kv.digests, digest_bytes(kv)),
                               .pool = t.reads(kv.pool, bytes_from(kv.pool)),
                               .slots = t.reads(kv.slots, row_bytes(kv)),
                               .len = t.reads(kv.len, row_bytes(kv)),
                               .n_pages = t.reads(kv.n_pages, stream_bytes(kv)),
                               .first_row = t.reads(first_row, stream_bytes(kv)),
                               .n_rows = n_rows,
                               .capacity = kv.capacity,
                               .head_dim = kv.head_dim,
                               .kind = static_cast<uint>(kv.digest),
                               .digest_by_row = kv.digest_by_row ? 1u : 0u};
  return context().dispatch(Kernel::kPageDigest, WeightType::kF32, {1}, push, t,
                            {groups_of(std::min(n_rows, kv.capacity)), kv.n_kv_heads});
}

}  // namespace

Status page_digest(OpContext&, const PageDigestArgs& a) { return digest(a.kv, a.first_row, a.n_rows); }

Status rebuild_last_minmax(const KvView& kv) { return digest(kv, nullptr, 1); }

Status rope_append(OpContext&, const RopeAppendArgs& a) { return append(a, nullptr); }

Status rope_append_at(const RopeAppendAtArgs& a) {
  if (a.op.n_tok != 1) return fail(WEIR_ERR_INTERNAL, "Vulkan: a step that appends %u tokens", a.op.n_tok);
  return append(a.op, a.n_tokens);
}

}  // namespace weir::vulkan
