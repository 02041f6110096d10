// Recall in a decode step: which pages come back, and their bytes.
#include <algorithm>
#include <bit>

#include "device/kernels/page_recall.h"
#include "vulkan/kv_ranges.h"
#include "vulkan/ops_sizes.h"
#include "vulkan/ops_tables.h"
#include "vulkan/steps.h"

namespace weir::vulkan {
namespace {

constexpr uint32_t kQuadBytes = 16;

constexpr uint64_t word_bytes(uint64_t n) { return n * sizeof(uint32_t); }

Status check(const PageRecallArgs& a) {
  if (a.page_bytes % kQuadBytes != 0) return fail(WEIR_ERR_INTERNAL, "Vulkan: pages of %u bytes", a.page_bytes);
  if (a.digest_elements % 2 != 0) return fail(WEIR_ERR_INTERNAL, "Vulkan: digests of %u elements", a.digest_elements);
  if (a.capacity > kMaxRecallRows)
    return fail(WEIR_ERR_INTERNAL, "Vulkan: recall of streams of %u pages; %u are the most", a.capacity,
                kMaxRecallRows);
  if (a.events.events != nullptr && !std::has_single_bit(a.events.capacity))
    return fail(WEIR_ERR_INTERNAL, "Vulkan: a ring of %u events", a.events.capacity);
  return {};
}

// What both kernels have of the journal.
uint64_t head_bytes(const PageRecallArgs& a) { return n_streams(a.tables) * sizeof(device::RecallHead); }
uint64_t entry_bytes(const PageRecallArgs& a) {
  return uint64_t{n_streams(a.tables)} * a.host.most * sizeof(device::RecallEntry);
}

TablesAt tables_of(const PageRecallArgs& a, Touches& t) {
  const KvTables& k = a.tables;
  const uint64_t rows = word_bytes(a.host.n_rows), streams = word_bytes(n_streams(k));
  TablesAt at = {};
  at.slots = t.writes(k.slots, rows);
  at.first_pos = t.reads(k.first_pos, rows);
  at.len = t.reads(k.len, rows);
  at.flags = t.writes(k.flags, rows);
  at.stamp = t.writes(k.stamp, rows);
  at.last_score = t.reads(k.last_score, rows);
  at.n_pages = t.reads(k.n_pages, streams);
  at.free_slots = t.reads(k.free_slots, bytes_from(k.free_slots));
  at.n_resident = t.writes(k.n_resident, streams);
  at.row_begin = t.reads(k.row_begin, streams + word_bytes(1));
  at.slot_begin = t.reads(k.slot_begin, streams + word_bytes(1));
  return at;
}

Status choose(const PageRecallArgs& a) {
  const KvTables& k = a.tables;
  const uint64_t lists = word_bytes(uint64_t{k.n_kv_heads} * a.capacity);
  const uint32_t event_capacity = a.events.events != nullptr ? a.events.capacity : 0;
  Touches t;
  PageRecallPush push = {};
  push.tables = tables_of(a, t);
  push.state = t.writes(a.state, sizeof(StepState));
  push.select = t.writes(a.select, lists);
  push.n_select = t.writes(a.n_select, word_bytes(k.n_kv_heads));
  if (a.digest_elements != 0) push.digests = t.writes(a.digests, lists / sizeof(uint32_t) * a.digest_elements * 2);
  push.raw_index = t.reads(a.raw_index, word_bytes(a.host.n_rows));
  push.resident = t.writes(a.resident, word_bytes(uint64_t{n_streams(k)} * resident_words(a.max_capacity)));
  if (event_capacity != 0) push.events = t.writes(a.events.events, event_capacity * sizeof(PageEvent));
  push.posts = t.writes(a.host.posts, k.n_kv_heads * sizeof(RecallPost));
  push.rows = t.writes(a.host.rows, word_bytes(uint64_t{k.n_kv_heads} * a.host.most));
  push.heads = t.writes(a.heads, head_bytes(a));
  push.entries = t.writes(a.entries, entry_bytes(a));
  push.layer = a.layer;
  push.n_layers = k.n_layers;
  push.n_kv_heads = k.n_kv_heads;
  push.capacity = a.capacity;
  push.most = a.host.most;
  push.resident_words = resident_words(a.max_capacity);
  push.digest_words = a.digests == nullptr ? 0 : a.digest_elements / 2;
  push.event_capacity = event_capacity;
  push.protect_pages = a.rules.protect.pages;
  push.front_rows = a.rules.front_rows;
  push.prompt_slots = a.rules.prompt_slots;
  push.select_budget = a.rules.select_budget;
  push.stamps_wanted = a.rules.stamps_wanted ? 1 : 0;
  push.attend_wanted = a.rules.attend_wanted ? 1 : 0;
  push.only_lists = a.only_lists ? 1 : 0;
  return context().dispatch(Kernel::kPageRecall, WeightType::kF32, top_rows_variant(a.capacity), push, t,
                            {k.n_kv_heads});
}

Status fetch(const PageRecallArgs& a) {
  const KvTables& k = a.tables;
  Touches t;
  PageFetchPush push = {};
  push.pool = t.writes(a.pool, bytes_from(a.pool));
  push.state = t.writes(a.state, sizeof(StepState));
  push.heads = t.reads(a.heads, head_bytes(a));
  push.entries = t.reads(a.entries, entry_bytes(a));
  push.raw_pages = t.reads(a.host.raw_pages, bytes_from(a.host.raw_pages));
  push.pages = t.reads(a.host.pages, uint64_t{k.n_kv_heads} * a.host.most * a.page_bytes);
  push.answers = t.reads(a.host.answers, k.n_kv_heads * sizeof(RecallAnswer));
  push.layer = a.layer;
  push.n_layers = k.n_layers;
  push.n_kv_heads = k.n_kv_heads;
  push.most = a.host.most;
  push.page_quads = a.page_bytes / kQuadBytes;
  return context().dispatch(Kernel::kPageFetch, WeightType::kF32, {}, push, t,
                            {std::min(a.host.most, kMaxGroups), k.n_kv_heads});
}

}  // namespace

// No kernel waits for the host: between the two of a recorded step the host can have its turn.
Status page_recall(const PageRecallArgs& a) {
  WEIR_TRY(check(a));
  WEIR_TRY(choose(a));
  if (a.only_lists) return {};
  Context& c = context();
  WEIR_TRY(c.recorder.next_part(c.device));
  return fetch(a);
}

}  // namespace weir::vulkan
