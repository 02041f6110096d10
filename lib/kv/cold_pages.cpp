// Copies of sealed pages; see cold_pages.h.
#include "kv/cold_pages.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/clock.h"

namespace weir {
namespace {

// Copies are dropped in this order: those of cold pages, of pages in the pool, of cold pages that are pinned; then by
// the last step that wanted the page.
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

void ColdPages::copy_from(const ColdPages& other) {
  windows_.copy_from(other.windows_);
  min_is_known_ = false;
  lacks_copies_ = other.lacks_copies_;
  n_losses_ = other.n_losses_;
  failure_ = other.failure_;
  lost_how_ = other.lost_how_;
  lost_pos_ = other.lost_pos_;
  recalled_.store(other.pages_recalled(), std::memory_order_relaxed);
  recall_ns_.store(other.recall_ns(), std::memory_order_relaxed);
}

void ColdPages::reset() {
  store_->clear();  // whatever the tables say: where a device steps, rows may have copies that they do not know yet
  windows_.reset();
  min_is_known_ = lacks_copies_ = false;
  n_losses_ = store_->n_losses();
  failure_ = WEIR_OK;
}

void ColdPages::forget(uint32_t stream, uint32_t row) {
  uint32_t& copy = kv_->stream(stream).copies[row];
  if (copy != kNoCopy) store_->release(copy);
  copy = kNoCopy;
}

// --- losses --------------------------------------------------------------------------------------------------------

// A cold page whose copy cannot be read, or that has none. `why` is a spill store's status.
void ColdPages::lose(uint32_t stream, uint32_t row, weir_status why) {
  forget(stream, row);
  kv_->lose(stream, row);
  if (!strict_) return;
  const uint32_t pos = kv_->stream(stream).first_pos[row];
  lost_pos_ = failure_ == WEIR_OK ? pos : std::min(lost_pos_, pos);
  if (failure_ != WEIR_OK) return;
  failure_ = why == WEIR_ERR_FORMAT ? WEIR_ERR_FORMAT : WEIR_ERR_IO;
  lost_how_ = why == WEIR_ERR_FORMAT  ? "because its copy was damaged"
              : why == WEIR_ERR_STATE ? "since before the conversation was saved"
                                      : "with the spill file";
}

// After the store was used: when it has given up its file, or another store of the family that had its pages has, the
// copies there are gone.
void ColdPages::look_at_losses() {
  const uint32_t n_losses = store_->n_losses();
  if (n_losses == n_losses_) return;
  n_losses_ = n_losses;
  min_is_known_ = false;
  windows_.look_at_losses();
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    if (!has_stream(s)) continue;
    const StreamView v = kv_->stream(s);
    for (uint32_t row = 0; row < v.n_pages; ++row) {
      if (v.copies[row] == kNoCopy || !store_->is_lost(v.copies[row])) continue;
      if (v.slots[row] == kNoSlot) {
        lose(s, row, WEIR_ERR_IO);
      } else {
        forget(s, row);
        lacks_copies_ = true;
      }
    }
  }
}

Status ColdPages::failure() const {
  if (failure_ == WEIR_OK) return {};
  return fail(failure_,
              "a page of the conversation is lost %s, from position %u on; tokens can be appended after a reset, or a "
              "rewind to before that position",
              lost_how_, lost_pos_);
}

Status ColdPages::prepare(uint32_t n_tok) {
  if (!strict_) return {};
  WEIR_TRY(failure());
  const uint32_t n_full = (kv_->n_tokens() + n_tok) / kPageTokens - kv_->n_tokens() / kPageTokens;
  const uint32_t n_pages = n_full * static_cast<uint32_t>(kv_->shape().n_streams() - kv_->shape().n_local_streams());
  const uint32_t n_losses = n_losses_;
  const bool all_copied = copy_again();
  Status status;
  do {
    status = all_copied && n_pages != 0 ? store_->make_room(n_pages) : Status();
  } while (!status.ok() && windows_.drop_one());
  look_at_losses();
  WEIR_TRY(failure());
  if (all_copied && !lacks_copies_ && status.ok()) return {};
  if (n_losses_ != n_losses) return fail(WEIR_ERR_IO, "the spill file failed, and without it the spill store is full");
  if (!status.ok()) return status;
  return fail(WEIR_ERR_BUDGET, "the spill store is full: it has no room for copies of all pages in the pool");
}

// --- copies --------------------------------------------------------------------------------------------------------

// Null if the device is lost.
const void* ColdPages::pool_page(uint32_t slot) {
  if (pool_ == nullptr) return kv_->page_keys(slot);
  return pool_->read(slot) ? pool_->buffer() : nullptr;
}

// kNoCopy if there is no room.
SpillHandle ColdPages::copy(uint32_t stream, uint32_t row, const void* page) {
  SpillHandle handle = kNoCopy;
  const auto tag = static_cast<uint32_t>(kv_->row_index(stream, row));
  while (!store_->put(stream, row * kPageTokens, page, handle, tag).ok() && windows_.drop_one()) {
  }
  return handle;
}

// Copies full pages in the pool that have no copy, as far as there is room. Returns whether all have one.
bool ColdPages::copy_again() {
  const uint32_t end = kv_->n_tokens() / kPageTokens;
  for (uint32_t s = 0; lacks_copies_ && s < kv_->shape().n_streams(); ++s) {
    if (!has_stream(s)) continue;
    const StreamView v = kv_->stream(s);
    for (uint32_t row = 0; row < end; ++row) {
      if (v.slots[row] == kNoSlot || v.copies[row] != kNoCopy) continue;
      const void* page = pool_page(v.slots[row]);
      if (page != nullptr) v.copies[row] = copy(s, row, page);
      if (v.copies[row] == kNoCopy) return false;
      min_is_known_ = false;
    }
  }
  lacks_copies_ = false;
  return true;
}

void ColdPages::seal(uint32_t first) {
  const uint32_t begin = first / kPageTokens, end = kv_->n_tokens() / kPageTokens;
  if (begin == end) return;
  min_is_known_ = false;
  for (uint32_t row = begin; row < end; ++row) copy_row(row, nullptr);
  look_at_losses();
  for (uint32_t page = begin; page < end; ++page) windows_.seal(page, nullptr);
  (void)copy_again();
  (void)make_raw_again();
}

void ColdPages::seal_row(uint32_t row, const uint16_t* pages) {
  min_is_known_ = false;
  copy_row(row, pages);
  look_at_losses();
  windows_.seal(row, pages);
  (void)copy_again();  // takes the memory where `pages` are
}

void ColdPages::copy_row(uint32_t row, const uint16_t* pages) {
  const size_t page_elements = kv_->shape().page_bytes() / sizeof(uint16_t);
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    if (!has_stream(s)) continue;
    const StreamView v = kv_->stream(s);
    if (v.copies[row] != kNoCopy) continue;  // by copy_again() after an earlier row
    const uint16_t* page = pages != nullptr ? pages + s * page_elements : kv_->page_keys(v.slots[row]);
    // A page for which no other copy can be dropped has none.
    do {
      v.copies[row] = copy(s, row, page);
    } while (v.copies[row] == kNoCopy && !strict_ && drop_one());
    if (v.copies[row] == kNoCopy) lacks_copies_ = true;
    if (min_is_known_ && min_[s] == kNoRow && v.copies[row] != kNoCopy) min_[s] = row;
  }
}

// At most as many as a seal compresses anyway, each time from another stream on.
bool ColdPages::make_raw_again() {
  if (!store_->has_compressed()) return false;
  const uint32_t n_streams = kv_->shape().n_streams(), n_sealed = kv_->n_tokens() / kPageTokens;
  const uint32_t since = (n_sealed - std::min(n_sealed, 1u)) * kPageTokens + 1;
  const uint32_t n_losses = n_losses_;
  bool any_lost = false;
  uint32_t left = n_streams;
  for (uint32_t i = 0; i < n_streams && left > 0; ++i) {
    const uint32_t s = (n_sealed + i) % n_streams;
    if (!has_stream(s)) continue;
    const StreamView v = kv_->stream(s);
    for (uint32_t row = 0; left > 0; ++row) {
      row = store_->find_compressed(v.copies, v.stamp, row, v.n_pages, since);
      if (row == v.n_pages) break;
      bool is_raw = false;
      const Status status = store_->make_raw(v.copies[row], s, row * kPageTokens, is_raw);
      if (!status.ok()) cannot_read_copy(s, row, status);
      any_lost = any_lost || !status.ok();
      left -= is_raw ? 1u : 0u;
    }
  }
  look_at_losses();
  return any_lost || n_losses_ != n_losses;
}

// Gives up the copy of a page that has one, whether the page is in the pool or cold.
void ColdPages::cannot_read_copy(uint32_t stream, uint32_t row, Status status) {
  const StreamView v = kv_->stream(stream);
  min_is_known_ = false;
  look_at_losses();
  if (v.copies[row] == kNoCopy) return;
  if (v.slots[row] == kNoSlot) {
    lose(stream, row, status.code());
  } else {
    forget(stream, row);
    lacks_copies_ = true;
  }
}

void ColdPages::find_least(uint32_t stream) {
  const StreamView v = kv_->stream(stream);
  uint32_t& least = min_[stream];
  least = kNoRow;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (v.copies[row] != kNoCopy && (least == kNoRow || drop_order(v, row) < drop_order(v, least))) least = row;
  }
}

// The stream whose copy of row min_[stream] is dropped next; false: there are no copies.
bool ColdPages::find_next_to_drop(uint32_t& stream) {
  const uint32_t n_streams = kv_->shape().n_streams();
  stream = n_streams;
  for (uint32_t s = 0; s < n_streams; ++s) {
    if (!has_stream(s)) continue;
    if (!min_is_known_) find_least(s);
    if (min_[s] == kNoRow) continue;
    if (stream == n_streams || drop_order(kv_->stream(s), min_[s]) < drop_order(kv_->stream(stream), min_[stream]))
      stream = s;
  }
  min_is_known_ = true;
  return stream != n_streams;
}

void ColdPages::drop(uint32_t stream, uint32_t row) {
  const StreamView v = kv_->stream(stream);
  if (v.copies[row] != kNoCopy) store_->drop(v.copies[row]);
  v.copies[row] = kNoCopy;
  if (v.slots[row] == kNoSlot) {
    kv_->lose(stream, row);
  } else {
    lacks_copies_ = true;
  }
}

bool ColdPages::drop_one() {
  uint32_t stream = 0;
  if (!find_next_to_drop(stream)) return false;
  drop(stream, min_[stream]);
  find_least(stream);
  return true;
}

void ColdPages::cannot_read(uint32_t stream, uint32_t row, Status status) {
  if (kv_->stream(stream).slots[row] != kNoSlot) {
    kv_->make_cold(stream, row);
    // Its copy may be known to be lost, with the file, since it got its slot.
    if (kv_->stream(stream).is_lost(row)) lose(stream, row, status.code());
  }
  look_at_losses();
  if (!kv_->stream(stream).is_lost(row)) lose(stream, row, status.code());
}

bool ColdPages::get_block(uint32_t stream, uint32_t row, std::byte* block, uint32_t& block_bytes, SpillPlace& place) {
  const StreamView v = kv_->stream(stream);
  const Status status = store_->get_block(v.copies[row], stream, v.first_pos[row], block, block_bytes, place);
  if (status.ok()) return true;
  cannot_read_copy(stream, row, status);
  return false;
}

void ColdPages::restore_without(uint32_t stream, uint32_t row) {
  if (kv_->stream(stream).slots[row] == kNoSlot) {
    lose(stream, row, WEIR_ERR_STATE);
  } else {
    lacks_copies_ = lacks_copies_ || kv_->stream(stream).len[row] == kPageTokens;
  }
}

Status ColdPages::put_block(uint32_t stream, uint32_t row, const std::byte* block, uint32_t block_bytes,
                            SpillPlace place) {
  const StreamView v = kv_->stream(stream);
  const bool is_resident = v.slots[row] != kNoSlot;
  void* page = nullptr;
  if (is_resident) page = pool_ != nullptr ? static_cast<void*>(pool_->buffer()) : kv_->page_data(v.slots[row]);
  WEIR_TRY(put_block(stream, row, block, block_bytes, place, page));
  if (!is_resident || pool_ == nullptr || pool_->write(v.slots[row])) return {};
  return fail(WEIR_ERR_DEVICE_LOST, "the device failed while a page of the conversation was copied to it");
}

Status ColdPages::put_block(uint32_t stream, uint32_t row, const std::byte* block, uint32_t block_bytes,
                            SpillPlace place, void* page) {
  const StreamView v = kv_->stream(stream);
  for (;;) {
    SpillHandle copy = kNoCopy;
    const auto tag = static_cast<uint32_t>(kv_->row_index(stream, row));
    const Status status = store_->put_block(stream, v.first_pos[row], block, block_bytes, place, page, copy, tag);
    if (status.ok()) {
      v.copies[row] = copy;
      uint32_t& least = min_[stream];
      if (min_is_known_ && (least == kNoRow || drop_order(v, row) < drop_order(v, least))) least = row;
      return {};
    }
    if (status.code() != WEIR_ERR_BUDGET || strict_) return status;
    uint32_t s = 0;
    const bool others = find_next_to_drop(s);
    const auto next = others ? drop_order(kv_->stream(s), min_[s]) : drop_order(v, row);
    if (!others || drop_order(v, row) < next || (drop_order(v, row) == next && stream < s)) {
      drop(stream, row);
      return {};
    }
    drop(s, min_[s]);
    find_least(s);
  }
}

bool ColdPages::read(uint32_t stream, uint32_t row, uint16_t* out) {
  const StreamView v = kv_->stream(stream);
  if (v.slots[row] != kNoSlot) {
    std::memcpy(out, kv_->page_keys(v.slots[row]), kv_->shape().page_bytes());
    return true;
  }
  if (v.copies[row] == kNoCopy) return false;
  const Status status = store_->get(v.copies[row], stream, v.first_pos[row], out);
  if (!status.ok()) cannot_read(stream, row, status);
  return status.ok();
}

bool ColdPages::recall(uint32_t stream, uint32_t row) {
  const StreamView v = kv_->stream(stream);
  if (v.copies[row] == kNoCopy) return false;
  const uint64_t started = now_ns();
  uint16_t* const page = kv_->take_back(stream, row);
  void* const out = pool_ != nullptr ? static_cast<void*>(pool_->buffer()) : page;
  const Status status = store_->get(v.copies[row], stream, v.first_pos[row], out);
  const bool came = status.ok() && (pool_ == nullptr || pool_->write(v.slots[row]));
  if (came) {
    recalled_.fetch_add(1, std::memory_order_relaxed);
  } else {
    cannot_read(stream, row, status);
  }
  recall_ns_.fetch_add(now_ns() - started, std::memory_order_relaxed);
  return came;
}

void ColdPages::took_back(uint32_t stream, uint32_t row, weir_status status, uint64_t ns) {
  if (status == WEIR_OK) {
    recalled_.fetch_add(1, std::memory_order_relaxed);
  } else {
    cannot_read(stream, row, Status(status));
  }
  recall_ns_.fetch_add(ns, std::memory_order_relaxed);
}

bool ColdPages::is_cold(uint32_t stream, uint32_t row) const {
  const StreamView v = kv_->stream(stream);
  return has_stream(stream) && row < v.n_pages && v.slots[row] == kNoSlot;
}

// Whether a cold page can be read, and has a slot when the pages after it are gone.
bool ColdPages::can_reopen(uint32_t stream, uint32_t row) {
  const StreamView v = kv_->stream(stream);
  return (kv_->is_in_pool(stream) || resident_before(v, row) < v.n_slots) && !v.is_lost(row) &&
         read(stream, row, kv_->spare_page());
}

// In one pool: whether the pages before this row, and this row in each stream, have slots when those after it are gone.
bool ColdPages::pool_can_hold(uint32_t row) const {
  uint64_t n = 0;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s)
    n += kv_->is_in_pool(s) ? resident_before(kv_->stream(s), row) + 1 : 0;
  return n <= kv_->n_pool_slots();
}

// KvCache::truncate, and the copies of pages that are no longer full.
void ColdPages::drop_rows(uint32_t n_tokens) {
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    const StreamView v = kv_->stream(s);
    for (uint32_t row = n_tokens / kPageTokens; has_stream(s) && row < v.n_pages; ++row) {
      if (v.copies[row] != kNoCopy) store_->release(v.copies[row]);
      if (v.slots[row] != kNoSlot) v.copies[row] = kNoCopy;  // of the others the tables still need to know
    }
  }
  kv_->truncate(n_tokens);
  store_->stamps_fell();
}

bool ColdPages::truncate(uint32_t n_tokens) {
  const uint32_t n_whole = n_tokens / kPageTokens, n_streams = kv_->shape().n_streams();
  const bool cuts_page = n_tokens % kPageTokens != 0;
  for (uint32_t s = 0; cuts_page && s < n_streams; ++s) {
    if (is_cold(s, n_whole) && !can_reopen(s, n_whole)) return false;
  }
  if (cuts_page && kv_->shape().one_pool && !pool_can_hold(n_whole)) return false;
  if (!windows_.can_be_read(n_tokens)) return false;
  bool came = true;
  if (cuts_page) {
    drop_rows(std::min(kv_->n_tokens(), (n_whole + 1) * kPageTokens));
    for (uint32_t s = 0; s < n_streams; ++s) came &= !is_cold(s, n_whole) || recall(s, n_whole);
    came = windows_.reopen(n_whole) && came;
  }
  drop_rows(came ? n_tokens : n_whole * kPageTokens);
  min_is_known_ = false;
  if (kv_->n_tokens() <= lost_pos_) failure_ = WEIR_OK;
  came = windows_.bring_back(kv_->n_tokens()) && came;
  look_at_losses();
  (void)copy_again();
  return came;
}

}  // namespace weir
