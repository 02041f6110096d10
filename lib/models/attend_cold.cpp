// A prompt chunk whose earlier pages are partly cold: they pass through a staging window of one unit of pages per KV
// head, in ascending order, and attention carries its sums from one unit to the next. The units are those of attention
// over a pool that holds everything, so on the CPU a chunk of several tokens has the same bits either way.
#include <algorithm>
#include <cstring>

#include "kv/page_copies.h"
#include "models/attend.h"
#include "ops/attn_paged.h"

namespace weir {

void StagingWindow::lay_out(uint32_t n_kv_heads, uint64_t page_bytes, uint32_t n_heads, uint32_t max_tok,
                            Arena& arena) {
  const uint64_t n = uint64_t{n_kv_heads} * kSplitPages;
  pages = arena.take<uint16_t>(n * page_bytes / sizeof(uint16_t));
  slots = arena.take<uint32_t>(n);
  first_pos = arena.take<uint32_t>(n);
  len = arena.take<uint32_t>(n);
  n_pages = arena.take<uint32_t>(n_kv_heads);
  high = arena.take<float>(uint64_t{max_tok} * n_heads);
  sum = arena.take<float>(uint64_t{max_tok} * n_heads);
}

namespace {

// Copies a unit of a stream's pages into the window. A page that is lost has no tokens there.
void load_unit(Step& s, const KvView& kv, uint32_t layer, uint32_t kv_head, uint32_t first_row) {
  const StagingWindow& w = s.b.staging;
  const uint32_t stream = layer * kv.n_kv_heads + kv_head, n_rows = kv.n_pages[kv_head];
  const uint32_t n = std::min(kSplitPages, n_rows - std::min(n_rows, first_row));
  w.n_pages[kv_head] = n;
  for (uint32_t i = 0; i < n; ++i) {
    const size_t to = size_t{kv_head} * kSplitPages + i, from = size_t{kv_head} * kv.capacity + first_row + i;
    w.slots[to] = static_cast<uint32_t>(to);
    w.first_pos[to] = kv.first_pos[from];
    w.len[to] = s.copies->read(stream, first_row + i, w.pages + to * kv.page_elements()) ? kv.len[from] : 0;
  }
}

}  // namespace

bool has_cold_pages(const Step& s, uint32_t layer) {
  const uint32_t n_kv_heads = s.kv->shape().n_kv_heads;
  for (uint32_t i = 0; i < n_kv_heads; ++i) {
    if (s.kv->has_cold(layer * n_kv_heads + i)) return true;
  }
  return false;
}

Status attend_chunk_cold(Step& s, AttnPagedArgs attn, uint32_t layer) {
  const KvView kv = attn.kv;
  const StagingWindow& w = s.b.staging;
  AttnCarry carry = {w.high, w.sum, true, false};
  attn.carry = &carry;
  attn.kv.pool = w.pages;
  attn.kv.slots = w.slots;
  attn.kv.first_pos = w.first_pos;
  attn.kv.len = w.len;
  attn.kv.n_pages = w.n_pages;
  attn.kv.capacity = kSplitPages;
  const uint32_t n_rows = *std::max_element(kv.n_pages, kv.n_pages + kv.n_kv_heads);
  for (uint32_t first = 0; first < n_rows; first += kSplitPages) {
    for (uint32_t head = 0; head < kv.n_kv_heads; ++head) load_unit(s, kv, layer, head, first);
    WEIR_TRY(s.copies->failure());
    carry.first = first == 0;
    carry.last = first + kSplitPages >= n_rows;
    WEIR_TRY(s.backend->ops.attn_paged(s.cx, attn));
  }
  return {};
}

}  // namespace weir
