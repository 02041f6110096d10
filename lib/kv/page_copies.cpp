// Copies of sealed pages; see page_copies.h.
#include "kv/page_copies.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/clock.h"
#include "kv/spill_store.h"

namespace weir {
namespace {

// Copies of rows are dropped in this order: those of cold pages, of pages in the pool, of cold pages that are pinned;
// then by the last step that wanted the page.
std::tuple<uint32_t, uint32_t> drop_order(const StreamView& v, uint32_t row) {
  const bool is_cold = v.slots[row] == kNoSlot, is_pinned = (v.flags[row] & kPageStays) != 0;
  return {!is_cold ? 1u : is_pinned ? 2u : 0u, v.stamp[row]};
}

// Pages in the pool among a stream's first rows.
uint32_t resident_before(const StreamView& v, uint32_t row) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < row; ++i) n += v.slots[i] != kNoSlot ? 1u : 0u;
  return n;
}

}  // namespace

void PageCopies::start(KvCache& kv, SpillStore* store, bool strict, PoolAccess* pool) {
  kv_ = &kv;
  store_ = store;
  strict_ = strict && store != nullptr;
  pool_ = pool;
  min_ = kv.row_per_stream();
  if (store_ == nullptr) return;
  state_.n_losses = store_->n_losses();
  if (kv.shape().recalls()) store_->set_stamps(kv.tables().stamp);
}

void PageCopies::reset() {
  if (store_ == nullptr) return;
  store_->clear();  // whatever the tables say: where a device steps, rows may have copies that they do not know yet
  min_is_known_ = false;
  state_ = {};
  state_.n_losses = store_->n_losses();
}

void PageCopies::copy_from(const PageCopies& other) {
  min_is_known_ = false;
  state_ = other.state_;
  recalled_.store(other.pages_recalled(), std::memory_order_relaxed);
  recall_ns_.store(other.recall_ns(), std::memory_order_relaxed);
}

// --- losses --------------------------------------------------------------------------------------------------------

// Takes a page's copy away, if it has one. `why`: the store has no room for it (WEIR_OK), or its status. Spare copies
// are not counted.
void PageCopies::lose(uint32_t stream, uint32_t page, weir_status why) {
  uint32_t& copy = *kv_->copy_entry(stream, page);
  if (copy != kNoCopy) {
    if (why == WEIR_OK && !is_spare(stream)) {
      store_->drop(copy);
    } else {
      store_->release(copy);
    }
  }
  copy = kNoCopy;
  if (!has_rows(stream)) {
    if (!is_spare(stream) && !kv_->holds(stream, page)) kv_->count_dropped(1);
    return;
  }
  if (kv_->stream(stream).slots[page] != kNoSlot) {
    state_.lacks_copies = true;
    return;
  }
  kv_->lose(stream, page);
  if (!strict_) return;
  const uint32_t pos = page * kPageTokens;
  state_.lost_pos = state_.failure == WEIR_OK ? pos : std::min(state_.lost_pos, pos);
  if (state_.failure != WEIR_OK) return;
  state_.failure = why == WEIR_ERR_FORMAT ? WEIR_ERR_FORMAT : WEIR_ERR_IO;
  state_.lost_how = why == WEIR_ERR_FORMAT  ? "because its copy was damaged"
                    : why == WEIR_ERR_STATE ? "since before the conversation was saved"
                                            : "with the spill file";
}

PageCopies::Span PageCopies::pages_of(uint32_t stream) const {
  if (kv_->has_ring(stream)) return {kv_->rings().first(), kv_->rings().end()};
  return {0, has_rows(stream) ? kv_->stream(stream).n_pages : 0};
}

// After the store was used: when it has given up its file, or another store of the family that had its pages has, the
// copies there are gone.
void PageCopies::look_at_losses() {
  if (store_ == nullptr || store_->n_losses() == state_.n_losses) return;
  state_.n_losses = store_->n_losses();
  min_is_known_ = false;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    const Span span = pages_of(s);
    for (uint32_t page = span.first; page < span.end; ++page) {
      const uint32_t copy = kv_->copy_of(s, page);
      if (copy != kNoCopy && store_->is_lost(copy)) lose(s, page, WEIR_ERR_IO);
    }
  }
}

// The copy of a page, which may be in the pool, could not be read.
void PageCopies::lose_copy(uint32_t stream, uint32_t page, Status status) {
  min_is_known_ = false;
  look_at_losses();
  if (kv_->copy_of(stream, page) != kNoCopy) lose(stream, page, status.code());
}

void PageCopies::cannot_read(uint32_t stream, uint32_t row, Status status) {
  const StreamView v = kv_->stream(stream);
  if (v.slots[row] != kNoSlot) {
    kv_->make_cold(stream, row);
    // Its copy may be known to be lost, with the file, since it got its slot.
    if (v.is_lost(row)) lose(stream, row, status.code());
  }
  lose_copy(stream, row, status);
}

Status PageCopies::failure() const {
  if (state_.failure == WEIR_OK) return {};
  return fail(state_.failure,
              "a page of the conversation is lost %s, from position %u on; tokens can be appended after a reset, or a "
              "rewind to before that position",
              state_.lost_how, state_.lost_pos);
}

Status PageCopies::prepare(uint32_t n_tok) {
  if (!strict_) return {};
  WEIR_TRY(failure());
  const uint32_t n_full = (kv_->n_tokens() + n_tok) / kPageTokens - kv_->n_tokens() / kPageTokens;
  const uint32_t n_pages = n_full * static_cast<uint32_t>(kv_->shape().n_streams() - kv_->shape().n_local_streams());
  const uint32_t n_losses = state_.n_losses;
  const bool all_copied = copy_again();
  Status status;
  do {
    status = all_copied && n_pages != 0 ? store_->make_room(n_pages) : Status();
  } while (!status.ok() && drop_oldest());
  look_at_losses();
  WEIR_TRY(failure());
  if (all_copied && !state_.lacks_copies && status.ok()) return {};
  if (state_.n_losses != n_losses)
    return fail(WEIR_ERR_IO, "the spill file failed, and without it the spill store is full");
  if (!status.ok()) return status;
  return fail(WEIR_ERR_BUDGET, "the spill store is full: it has no room for copies of all pages in the pool");
}

// --- dropping ------------------------------------------------------------------------------------------------------

// Gives the oldest copy up that is in a ring and of a page before this one; false: there is none.
bool PageCopies::drop_oldest(uint32_t before) {
  CopyRings& rings = kv_->rings();
  for (uint32_t page = rings.first(); page < std::min(before, rings.end()); rings.set_first(++page)) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      if (!kv_->has_ring(s) || kv_->copy_of(s, page) == kNoCopy) continue;
      lose(s, page, WEIR_OK);
      return true;
    }
  }
  return false;
}

void PageCopies::find_min(uint32_t stream) {
  const StreamView v = kv_->stream(stream);
  uint32_t& min = min_[stream];
  min = kNoRow;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (v.copies[row] != kNoCopy && (min == kNoRow || drop_order(v, row) < drop_order(v, min))) min = row;
  }
}

// The stream whose copy of row min_[stream] is dropped next; false: there are no copies.
bool PageCopies::find_next_to_drop(uint32_t& stream) {
  const uint32_t n_streams = kv_->shape().n_streams();
  stream = n_streams;
  for (uint32_t s = 0; s < n_streams; ++s) {
    if (!has_rows(s)) continue;
    if (!min_is_known_) find_min(s);
    if (min_[s] == kNoRow) continue;
    if (stream == n_streams || drop_order(kv_->stream(s), min_[s]) < drop_order(kv_->stream(stream), min_[stream]))
      stream = s;
  }
  min_is_known_ = true;
  return stream != n_streams;
}

// The same of rows. If `page` of a stream is to have a copy, but would be dropped first, no other one is.
bool PageCopies::drop_stalest(uint32_t stream, uint32_t page) {
  uint32_t s = 0;
  if (strict_ || !has_rows(stream) || !find_next_to_drop(s)) return false;
  if (page != kNoRow) {
    const auto own = drop_order(kv_->stream(stream), page), other = drop_order(kv_->stream(s), min_[s]);
    if (own < other || (own == other && stream < s)) return false;
  }
  lose(s, min_[s], WEIR_OK);
  find_min(s);
  return true;
}

// --- making copies -------------------------------------------------------------------------------------------------

// Where the store tells of a page's copy and reads its stamp. Nobody asks where copies in rings are: their tag is that
// of a row without a copy.
uint32_t PageCopies::tag(uint32_t stream, uint32_t page) const {
  return static_cast<uint32_t>(kv_->row_index(stream, has_rows(stream) ? page : 0));
}

// Null if the device is lost.
const void* PageCopies::pool_page(uint32_t slot) {
  if (pool_ == nullptr) return kv_->page_keys(slot);
  return pool_->read(slot) ? pool_->buffer() : nullptr;
}

// The handle; kNoCopy if there is no room.
uint32_t PageCopies::put(uint32_t stream, uint32_t page, const void* data, bool drops_rows) {
  SpillHandle copy = kNoCopy;
  while (!store_->put(stream, page * kPageTokens, data, copy, tag(stream, page), is_spare(stream)).ok() &&
         (drop_oldest() || (drops_rows && drop_stalest(stream)))) {
  }
  return copy;
}

// Copies full pages in the pool whose rows have no copy, as far as there is room. Returns whether all have one.
bool PageCopies::copy_again() {
  const uint32_t end = kv_->n_tokens() / kPageTokens;
  for (uint32_t s = 0; state_.lacks_copies && s < kv_->shape().n_streams(); ++s) {
    if (!has_rows(s)) continue;
    const StreamView v = kv_->stream(s);
    for (uint32_t row = 0; row < end; ++row) {
      if (v.slots[row] == kNoSlot || v.copies[row] != kNoCopy) continue;
      const void* page = pool_page(v.slots[row]);
      if (page != nullptr) v.copies[row] = put(s, row, page, false);
      if (v.copies[row] == kNoCopy) return false;
      min_is_known_ = false;
    }
  }
  state_.lacks_copies = false;
  return true;
}

void PageCopies::seal(uint32_t first) {
  const uint32_t begin = first / kPageTokens, end = kv_->n_tokens() / kPageTokens;
  if (store_ == nullptr || begin == end) return;
  seal_pages(begin, end, nullptr);
  (void)make_raw_again();
}

// Page by page, so that it makes no difference how many pages are sealed together; spare ones last.
void PageCopies::seal_pages(uint32_t begin, uint32_t end, const uint16_t* pages) {
  const size_t page_elements = kv_->shape().page_bytes() / sizeof(uint16_t);
  min_is_known_ = false;
  for (const bool spare : {false, true}) {
    for (uint32_t page = begin; page < end; ++page) {
      for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
        if (is_spare(s) == spare) copy_page(s, page, pages != nullptr ? pages + s * page_elements : nullptr);
      }
    }
    if (!spare) look_at_losses();
  }
  (void)copy_again();  // takes the memory where `pages` are
}

// `data`: null if it is in the pool.
void PageCopies::copy_page(uint32_t stream, uint32_t page, const uint16_t* data) {
  const bool has_ring = kv_->has_ring(stream);
  if (!has_ring && !has_rows(stream)) return;
  if (kv_->copy_of(stream, page) != kNoCopy) return;  // by copy_again() after an earlier row
  if (data == nullptr) {
    if (!kv_->holds(stream, page)) return;  // it has left a window
    const StreamView v = kv_->stream(stream);
    const uint32_t row = kv_->row_of(stream, page);
    data = kv_->page_keys(v.slots[row]);
    if (has_ring) begin_page(page);
    if (has_ring) kv_->rings().set_flag(page, static_cast<uint8_t>(v.flags[row] & kPagePrompt));
  }
  // It has an entry once the copy is there: drop_oldest() looks at those that are. A page for which no other copy can
  // be dropped has none.
  const uint32_t copy = put(stream, page, data, true);
  if (has_ring) begin_page(page);
  *kv_->copy_entry(stream, page) = copy;
  if (has_ring) return;
  state_.lacks_copies = state_.lacks_copies || copy == kNoCopy;
  if (min_is_known_ && min_[stream] == kNoRow && copy != kNoCopy) min_[stream] = page;
}

bool PageCopies::needs_tables() const {
  return store_ != nullptr && (state_.lacks_copies || store_->n_losses() != state_.n_losses);
}

bool PageCopies::needs_stamps(uint32_t n_rows) const {
  return store_ != nullptr && (store_->has_compressed() || store_->needs_stamps(n_rows * kv_->shape().n_streams()));
}

// At most as many as a seal compresses anyway, each time from another stream on.
bool PageCopies::make_raw_again() {
  if (!kv_->shape().recalls() || !store_->has_compressed()) return false;
  const uint32_t n_streams = kv_->shape().n_streams(), n_sealed = kv_->n_tokens() / kPageTokens;
  const uint32_t since = (n_sealed - std::min(n_sealed, 1u)) * kPageTokens + 1;
  const uint32_t n_losses = state_.n_losses;
  bool any_lost = false;
  uint32_t left = n_streams;
  for (uint32_t i = 0; i < n_streams && left > 0; ++i) {
    const uint32_t s = (n_sealed + i) % n_streams;
    if (!has_rows(s)) continue;
    const StreamView v = kv_->stream(s);
    for (uint32_t row = 0; left > 0; ++row) {
      row = store_->find_compressed(v.copies, v.stamp, row, v.n_pages, since);
      if (row == v.n_pages) break;
      bool is_raw = false;
      const Status status = store_->make_raw(v.copies[row], s, row * kPageTokens, is_raw);
      if (!status.ok()) lose_copy(s, row, status);
      any_lost = any_lost || !status.ok();
      left -= is_raw ? 1u : 0u;
    }
  }
  look_at_losses();
  return any_lost || state_.n_losses != n_losses;
}

// --- reading -------------------------------------------------------------------------------------------------------

bool PageCopies::has(uint32_t stream, uint32_t page) const {
  return kv_->slot_of(stream, page) != kNoSlot || kv_->copy_of(stream, page) != kNoCopy;
}

bool PageCopies::has_windows(uint32_t n_tokens) const {
  const uint32_t end = (n_tokens + kPageTokens - 1) / kPageTokens;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t page = kv_->first_page_seen(s, n_tokens); is_spare(s) && page < end; ++page) {
      if (!has(s, page)) return false;
    }
  }
  return true;
}

Status PageCopies::read_copy(uint32_t stream, uint32_t page, void* out) const {
  return store_->get(kv_->copy_of(stream, page), stream, page * kPageTokens, out);
}

bool PageCopies::read(uint32_t stream, uint32_t page, uint16_t* out) {
  const uint32_t slot = kv_->slot_of(stream, page);
  if (slot != kNoSlot) {
    std::memcpy(out, kv_->page_keys(slot), kv_->shape().page_bytes());
    return true;
  }
  if (kv_->copy_of(stream, page) == kNoCopy) return false;
  const Status status = read_copy(stream, page, out);
  if (!status.ok()) lose_copy(stream, page, status);
  return status.ok();
}

// Into a free slot, whose bytes come first: a page that cannot be read takes none.
bool PageCopies::bring_back(uint32_t stream, uint32_t page) {
  if (kv_->copy_of(stream, page) == kNoCopy) return false;
  const uint64_t started = now_ns();
  const uint32_t slot = kv_->next_slot(stream);
  void* const to = pool_ != nullptr ? static_cast<void*>(pool_->buffer()) : kv_->page_data(slot);
  Status status = read_copy(stream, page, to);
  if (status.ok() && pool_ != nullptr && !pool_->write(slot)) status = Status(WEIR_ERR_DEVICE_LOST);
  if (status.ok()) {
    kv_->put_back(stream, page);
  } else {
    if (pool_ == nullptr) wipe(to, kv_->shape().page_bytes());  // as free pages are
    lose_copy(stream, page, status);
  }
  if (has_rows(stream)) count_recall(status.ok(), now_ns() - started);
  return status.ok();
}

void PageCopies::took_back(uint32_t stream, uint32_t row, weir_status status, uint64_t ns) {
  if (status != WEIR_OK) cannot_read(stream, row, Status(status));
  count_recall(status == WEIR_OK, ns);
}

// --- going back ----------------------------------------------------------------------------------------------------

// Whether a page that is cut is there, or can be read and has a place when the pages after it are gone.
bool PageCopies::can_reopen(uint32_t stream, uint32_t page) {
  const StreamView v = kv_->stream(stream);
  if (kv_->has_ring(stream)) {
    if (kv_->holds(stream, page)) return true;
    return kv_->copy_of(stream, page) != kNoCopy && kv_->row_of(stream, page) < v.capacity;
  }
  if (!has_rows(stream) || page >= v.n_pages || v.slots[page] != kNoSlot) return true;
  return (kv_->is_in_pool(stream) || resident_before(v, page) < v.n_slots) && !v.is_lost(page) &&
         read(stream, page, kv_->spare_page());
}

// In one pool: whether the pages before this row, and this row in each stream, have slots when those after it are gone.
bool PageCopies::pool_can_hold(uint32_t row) const {
  uint64_t n = 0;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s)
    n += kv_->is_in_pool(s) ? resident_before(kv_->stream(s), row) + 1 : 0;
  return n <= kv_->n_pool_slots();
}

// All copies that the windows need are read: whoever goes back without the damaged ones must not meet another. A page
// that is cut must be there, for the next token goes into it.
bool PageCopies::can_read_windows(uint32_t n_tokens) {
  const uint32_t end = (n_tokens + kPageTokens - 1) / kPageTokens;
  bool all = true;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t page = kv_->first_page_seen(s, n_tokens); is_spare(s) && page < end; ++page) {
      if (kv_->holds(s, page)) continue;
      const bool has_copy = kv_->copy_of(s, page) != kNoCopy;
      if (!read(s, page, kv_->spare_page())) all = all && !has_copy && (page + 1) * kPageTokens <= n_tokens;
    }
  }
  return all;
}

bool PageCopies::can_cut(uint32_t n_tokens) {
  if (store_ == nullptr) return true;
  const uint32_t n_whole = n_tokens / kPageTokens;
  const bool cuts_page = n_tokens % kPageTokens != 0;
  for (uint32_t s = 0; cuts_page && s < kv_->shape().n_streams(); ++s) {
    if (!is_spare(s) && !can_reopen(s, n_whole)) return false;
  }
  if (cuts_page && kv_->shape().one_pool && !pool_can_hold(n_whole)) return false;
  return can_read_windows(n_tokens);
}

// KvCache::truncate, and the copies of pages that are no longer full.
void PageCopies::truncate(uint32_t n_tokens) {
  const uint32_t first = n_tokens / kPageTokens;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    const Span span = pages_of(s);
    for (uint32_t page = std::max(first, span.first); page < span.end; ++page) {
      uint32_t& copy = *kv_->copy_entry(s, page);
      if (copy == kNoCopy) continue;
      store_->release(copy);
      const bool is_resident = kv_->slot_of(s, page) != kNoSlot;
      if (has_rows(s) && !is_resident) continue;  // the tables still need to know that it was not lost
      if (!is_spare(s) && !is_resident) kv_->count_forgotten(1);
      copy = kNoCopy;
    }
  }
  kv_->rings().cut(first);
  kv_->truncate(n_tokens);
  store_->stamps_fell();
}

// Brings pages of a ring back after a truncation, the newest first. The pages of a window follow each other.
bool PageCopies::refill(uint32_t stream, uint32_t n_tokens) {
  const uint32_t first = std::max(kv_->rings().first(), is_spare(stream) ? kv_->first_page_seen(stream, n_tokens) : 0u);
  bool came = true;
  for (uint32_t page = n_tokens / kPageTokens; page-- > first;) {
    const StreamView v = kv_->stream(stream);
    if (v.n_pages == v.capacity) break;
    if (kv_->holds(stream, page)) continue;
    const bool has_copy = kv_->copy_of(stream, page) != kNoCopy, is_back = has_copy && bring_back(stream, page);
    came = came && (is_back || !has_copy);
    if (!is_back && is_spare(stream)) break;
  }
  return came;
}

bool PageCopies::cut(uint32_t n_tokens, bool refills) {
  if (store_ == nullptr) {
    kv_->truncate(n_tokens);
    return true;
  }
  if (!can_cut(n_tokens)) return false;
  const uint32_t n_whole = n_tokens / kPageTokens, n_streams = kv_->shape().n_streams();
  bool came = true;
  if (n_tokens % kPageTokens != 0) {
    truncate(std::min(kv_->n_tokens(), (n_whole + 1) * kPageTokens));
    for (uint32_t s = 0; s < n_streams; ++s) {
      if ((kv_->has_ring(s) || has_rows(s)) && kv_->slot_of(s, n_whole) == kNoSlot) came &= bring_back(s, n_whole);
    }
  }
  truncate(came ? n_tokens : n_whole * kPageTokens);
  min_is_known_ = false;
  if (kv_->n_tokens() <= state_.lost_pos) state_.failure = WEIR_OK;
  for (uint32_t s = 0; s < n_streams; ++s) {
    if (kv_->has_ring(s) && (refills || is_spare(s))) came &= refill(s, kv_->n_tokens());
  }
  look_at_losses();
  (void)copy_again();
  return came;
}

// --- saved conversations -------------------------------------------------------------------------------------------

bool PageCopies::get_block(uint32_t stream, uint32_t page, std::byte* block, uint32_t& block_bytes, SpillPlace& place) {
  const uint32_t copy = kv_->copy_of(stream, page);
  if (copy == kNoCopy) return false;
  const Status status = store_->get_block(copy, stream, page * kPageTokens, block, block_bytes, place);
  if (!status.ok()) lose_copy(stream, page, status);
  return status.ok();
}

bool PageCopies::find_place(uint32_t stream, uint32_t page, SpillPlace& place) const {
  const uint32_t copy = kv_->copy_of(stream, page);
  return copy != kNoCopy && store_->find_place(copy, place);
}

void PageCopies::begin_page(uint32_t page) {
  if (store_ == nullptr) return;
  if (page == 0) min_is_known_ = false;
  while (drop_oldest(kv_->rings().first_beside(page))) {
  }
  // What drop_oldest() was looking for may have been behind this page.
  kv_->rings().add(page);
}

Status PageCopies::put_block(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes,
                             SpillPlace place) {
  const bool has_ring = kv_->has_ring(stream);
  const uint32_t slot = kv_->slot_of(stream, page);
  void* to = nullptr;
  if (!has_ring && slot != kNoSlot) to = pool_ != nullptr ? static_cast<void*>(pool_->buffer()) : kv_->page_data(slot);
  if (has_ring && slot == kNoSlot) kv_->count_left(1);
  if (has_ring) begin_page(page);
  SpillHandle copy = kNoCopy;
  Status status;
  do {
    status = store_->put_block(stream, page * kPageTokens, block, block_bytes, place, to, copy, tag(stream, page));
  } while (status.code() == WEIR_ERR_BUDGET && (drop_oldest() || drop_stalest(stream, page)));
  if (has_ring) begin_page(page);
  const bool is_full = status.code() == WEIR_ERR_BUDGET && !strict_;
  if (!status.ok() && !is_full) return status;
  *kv_->copy_entry(stream, page) = copy;
  if (is_full) {
    lose(stream, page, WEIR_OK);
  } else if (!has_ring && min_is_known_) {
    const StreamView v = kv_->stream(stream);
    uint32_t& min = min_[stream];
    if (min == kNoRow || drop_order(v, page) < drop_order(v, min)) min = page;
  }
  look_at_losses();
  if (to == nullptr || pool_ == nullptr || pool_->write(slot)) return {};
  return fail(WEIR_ERR_DEVICE_LOST, "the device failed while a page of the conversation was copied to it");
}

Status PageCopies::keep(uint32_t stream, uint32_t page, SpillPlace place) {
  auto* const block = reinterpret_cast<std::byte*>(kv_->spare_page());
  const uint16_t* data = kv_->page_keys(kv_->slot_of(stream, page));
  return put_block(stream, page, block, store_->make_block(stream, page * kPageTokens, data, block), place);
}

void PageCopies::restore_without(uint32_t stream, uint32_t page) {
  if (!has_rows(stream)) {
    if (!kv_->has_ring(stream) || kv_->holds(stream, page)) return;
    kv_->count_left(1);
    kv_->count_dropped(1);
  } else if (kv_->stream(stream).slots[page] == kNoSlot) {
    lose(stream, page, WEIR_ERR_STATE);
  } else {
    state_.lacks_copies = state_.lacks_copies || kv_->stream(stream).len[page] == kPageTokens;
  }
}

}  // namespace weir
