// Pages that move between the pool and host memory, and what is known of pages that are elsewhere.
#include <algorithm>

#include "device/kernels/copies.h"
#include "device/kernels/fill.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops_tables.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

constexpr uint32_t kQuadBytes = 16;

Status check_page(uint32_t page_bytes) {
  return page_bytes % kQuadBytes == 0 ? Status() : fail(WEIR_ERR_INTERNAL, "Vulkan: pages of %u bytes", page_bytes);
}

Grid groups(uint64_t n) { return {static_cast<uint32_t>(std::min<uint64_t>(n, kMaxGroups))}; }

constexpr uint64_t word_bytes(uint64_t n) { return n * sizeof(uint32_t); }

template <class Push>
Status launch(Kernel kernel, const Push& push, const Touches& t, uint64_t n_groups) {
  return context().dispatch(kernel, WeightType::kF32, {1}, push, t, groups(n_groups));
}

}  // namespace

Status copy_row_out(const CopyRowOutArgs& a) {
  WEIR_TRY(check_page(a.page_bytes));
  const KvTables& k = a.tables;
  const uint64_t n = n_streams(k);
  Touches t;
  CopyRowOutPush push = {};
  push.pages = t.writes(a.pages, n * a.page_bytes);
  push.pool = t.reads(a.pool, bytes_from(a.pool));
  push.slots = t.reads(k.slots, bytes_from(k.slots));
  push.first_pos = t.reads(k.first_pos, bytes_from(k.first_pos));
  push.n_pages = t.reads(k.n_pages, word_bytes(n));
  push.row_begin = t.reads(k.row_begin, word_bytes(n + 1));
  push.window = t.reads(k.window, word_bytes(n));
  push.n_streams = n_streams(k);
  push.row = a.row;
  push.page_quads = a.page_bytes / kQuadBytes;
  return launch(Kernel::kCopyRowOut, push, t, n);
}

Status copy_pages(const CopyPagesArgs& a) {
  WEIR_TRY(check_page(a.page_bytes));
  if (a.n == 0) return {};
  const uint64_t bytes = uint64_t{a.n} * a.page_bytes, pool_bytes = bytes_from(a.pool);
  Touches t;
  CopyPagesPush push = {};
  push.pool = a.in ? t.writes(a.pool, pool_bytes) : t.reads(a.pool, pool_bytes);
  push.pages = a.in ? t.reads(a.pages, bytes) : t.writes(a.pages, bytes);
  push.slots = t.reads(a.slots, word_bytes(a.n));
  push.n = a.n;
  push.page_quads = a.page_bytes / kQuadBytes;
  push.is_in = a.in ? 1 : 0;
  return launch(Kernel::kCopyPages, push, t, a.n);
}

Status load_unit(const LoadUnitArgs& a) {
  WEIR_TRY(check_page(a.page_bytes));
  const uint32_t n = a.n_kv_heads * kSplitPages;
  Touches t;
  LoadUnitPush push = {};
  push.window = t.writes(a.window, uint64_t{n} * a.page_bytes);
  push.slots = t.writes(a.slots, word_bytes(n));
  push.first_pos = t.writes(a.first_pos, word_bytes(n));
  push.len = t.writes(a.len, word_bytes(n));
  push.n_pages = t.writes(a.n_pages, word_bytes(a.n_kv_heads));
  push.page_slots = t.reads(a.host.page_slots, word_bytes(n));
  push.unit_pos = t.reads(a.host.unit_pos, word_bytes(n));
  push.unit_len = t.reads(a.host.unit_len, word_bytes(n));
  push.raw_pages = t.reads(a.host.raw_pages, bytes_from(a.host.raw_pages));
  push.pages = t.reads(a.host.pages, uint64_t{a.host.n_pages} * a.page_bytes);
  push.pool = t.reads(a.pool, bytes_from(a.pool));
  push.n = n;
  push.page_quads = a.page_bytes / kQuadBytes;
  return launch(Kernel::kLoadUnit, push, t, n);
}

// Digests are made when the pages are there.
Status fill_row(const FillRowArgs& a) {
  WEIR_TRY(check_head_dim(a.head_dim));
  const KvTables& k = a.tables;
  const uint64_t n = n_streams(k), bytes = n * kPageTokens * a.head_dim * 2 * sizeof(uint16_t);
  FillRowPush push = {};
  push.n_streams = n_streams(k);
  push.row = a.row;
  push.head_dim = a.head_dim;
  push.kind = static_cast<uint>(a.digest);
  push.seed_low = static_cast<uint>(a.seed);
  push.seed_high = static_cast<uint>(a.seed >> 32);
  Touches noise;
  push.pool = noise.writes(a.pool, bytes_from(a.pool));
  push.pages = noise.writes(a.pages, bytes);
  push.slots = noise.reads(a.slots, word_bytes(n));
  WEIR_TRY(launch(Kernel::kFillRow, push, noise, n));
  if (a.digest == DigestKind::kNone) return {};
  Touches t;
  push.pool = t.reads(a.pool, bytes_from(a.pool));
  push.pages = {};
  push.slots = t.reads(a.slots, word_bytes(n));
  push.digests = t.writes(a.digests, bytes_from(a.digests));
  push.row_begin = t.reads(k.row_begin, word_bytes(n + 1));
  push.window = t.reads(k.window, word_bytes(n));
  return launch(Kernel::kFillRow, push, t, n);
}

Status mark_resident(const MarkResidentArgs& a) {
  const KvTables& k = a.tables;
  const uint64_t n = n_streams(k);
  const uint32_t words = resident_words(a.max_capacity);
  Touches t;
  MarkResidentPush push = {};
  push.resident = t.writes(a.resident, word_bytes(n * words));
  push.slots = t.reads(k.slots, bytes_from(k.slots));
  push.n_pages = t.reads(k.n_pages, word_bytes(n));
  push.row_begin = t.reads(k.row_begin, word_bytes(n + 1));
  push.n_streams = n_streams(k);
  push.n_words = words;
  return launch(Kernel::kMarkResident, push, t, (n * words + kInvocations - 1) / kInvocations);
}

Status spoil_lost(const SpoilLostArgs& a) {
  if (a.digest_elements == 0) return {};
  if (a.digest_elements % 2 != 0) return fail(WEIR_ERR_INTERNAL, "Vulkan: digests of %u elements", a.digest_elements);
  const KvTables& k = a.tables;
  const uint64_t n = n_streams(k);
  Touches t;
  SpoilLostPush push = {};
  push.digests = t.writes(a.digests, bytes_from(a.digests));
  push.raw_index = t.reads(a.raw_index, bytes_from(a.raw_index));
  push.slots = t.reads(k.slots, bytes_from(k.slots));
  push.n_pages = t.reads(k.n_pages, word_bytes(n));
  push.row_begin = t.reads(k.row_begin, word_bytes(n + 1));
  push.window = t.reads(k.window, word_bytes(n));
  push.n_streams = n_streams(k);
  push.digest_words = a.digest_elements / 2;
  return launch(Kernel::kSpoilLost, push, t, n);
}

}  // namespace weir::vulkan
