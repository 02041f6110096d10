// Copies of sealed pages; see cold_pages.h.
#include "kv/cold_pages.h"

#include <cstring>
#include <tuple>

#include "core/clock.h"

namespace weir {
namespace {

// The page that was wanted the longest ago among those that may leave; `none` if there is none.
uint32_t stalest(const StreamView& v, uint32_t none) {
  uint32_t best = none;
  for (uint32_t row = 0; row + 1 < v.n_pages; ++row) {
    const bool leaves = v.slots[row] != kNoSlot && (v.flags[row] & kPageStays) == 0;
    if (leaves && (best == none || v.stamp[row] < v.stamp[best])) best = row;
  }
  return best;
}

// Copies are dropped in this order: those of cold pages, of pages in the pool, of cold pages that are pinned; then by
// the last step that wanted the page.
std::tuple<uint32_t, uint32_t> drop_order(const StreamView& v, uint32_t row) {
  const bool is_cold = v.slots[row] == kNoSlot, is_pinned = (v.flags[row] & kPageStays) != 0;
  return {!is_cold ? 1u : is_pinned ? 2u : 0u, v.stamp[row]};
}

}  // namespace

void ColdPages::reset() {
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t row = 0; has_stream(s) && row < kv_->stream(s).n_pages; ++row) forget(s, row);
  }
}

void ColdPages::forget(uint32_t stream, uint32_t row) {
  uint32_t& copy = kv_->stream(stream).copies[row];
  if (copy != kNoCopy) store_->release(copy);
  copy = kNoCopy;
}

void ColdPages::seal(uint32_t first) {
  least_is_known_ = false;
  for (uint32_t row = first / kPageTokens; row < kv_->n_tokens() / kPageTokens; ++row) copy_row(row, nullptr);
}

void ColdPages::seal_row(uint32_t row, const uint16_t* pages) {
  least_is_known_ = false;
  copy_row(row, pages);
}

void ColdPages::copy_row(uint32_t row, const uint16_t* pages) {
  const size_t page_elements = kv_->shape().page_bytes() / sizeof(uint16_t);
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    if (!has_stream(s)) continue;
    const StreamView v = kv_->stream(s);
    const uint16_t* page = pages != nullptr ? pages + s * page_elements : kv_->page_keys(v.slots[row]);
    const auto tag = static_cast<uint32_t>(kv_->row_index(s, row));
    // A page for which no other copy can be dropped has none.
    do {
      v.copies[row] = kNoCopy;
    } while (!store_->put(s, row * kPageTokens, page, v.copies[row], tag).ok() && drop_one());
    if (least_is_known_ && least_[s] == kNoRow && v.copies[row] != kNoCopy) least_[s] = row;
  }
}

void ColdPages::find_least(uint32_t stream) {
  const StreamView v = kv_->stream(stream);
  uint32_t& least = least_[stream];
  least = kNoRow;
  for (uint32_t row = 0; row < v.n_pages; ++row) {
    if (v.copies[row] != kNoCopy && (least == kNoRow || drop_order(v, row) < drop_order(v, least))) least = row;
  }
}

bool ColdPages::drop_one() {
  const uint32_t n_streams = kv_->shape().n_streams();
  uint32_t stream = n_streams;
  for (uint32_t s = 0; s < n_streams; ++s) {
    if (!has_stream(s)) continue;
    if (!least_is_known_) find_least(s);
    if (least_[s] == kNoRow) continue;
    if (stream == n_streams || drop_order(kv_->stream(s), least_[s]) < drop_order(kv_->stream(stream), least_[stream]))
      stream = s;
  }
  least_is_known_ = true;
  if (stream == n_streams) return false;
  const StreamView v = kv_->stream(stream);
  const uint32_t row = least_[stream];
  store_->drop(v.copies[row]);
  v.copies[row] = kNoCopy;
  if (v.slots[row] == kNoSlot) kv_->lose(stream, row);
  find_least(stream);
  return true;
}

bool ColdPages::read(uint32_t stream, uint32_t row, uint16_t* out) {
  const StreamView v = kv_->stream(stream);
  if (v.slots[row] != kNoSlot) {
    std::memcpy(out, kv_->page_keys(v.slots[row]), kv_->shape().page_bytes());
    return true;
  }
  if (v.copies[row] == kNoCopy) return false;
  if (store_->get(v.copies[row], stream, v.first_pos[row], out).ok()) return true;
  lose(stream, row);
  return false;
}

bool ColdPages::recall(uint32_t stream, uint32_t row) {
  const StreamView v = kv_->stream(stream);
  if (v.copies[row] == kNoCopy) return false;
  const uint64_t started = now_ns();
  uint16_t* const page = kv_->take_back(stream, row);
  void* const out = writer_ != nullptr ? static_cast<void*>(writer_->buffer()) : page;
  bool came = store_->get(v.copies[row], stream, v.first_pos[row], out).ok();
  if (came && writer_ != nullptr) came = writer_->write(v.slots[row]);
  if (came) {
    recalled_.fetch_add(1, std::memory_order_relaxed);
  } else {  // its bytes are damaged
    lose(stream, row);
  }
  recall_ns_.fetch_add(now_ns() - started, std::memory_order_relaxed);
  return came;
}

void ColdPages::lose(uint32_t stream, uint32_t row) {
  if (kv_->stream(stream).slots[row] != kNoSlot) kv_->make_cold(stream, row);
  forget(stream, row);
  kv_->lose(stream, row);
}

bool ColdPages::can_reopen(uint32_t stream, uint32_t row) const {
  const StreamView v = kv_->stream(stream);
  if (row >= v.n_pages || v.slots[row] != kNoSlot) return true;
  return !v.is_lost(row) && (v.n_resident < v.n_slots || stalest(v, row) != row);
}

bool ColdPages::reopen(uint32_t stream, uint32_t row) {
  const StreamView v = kv_->stream(stream);
  if (row >= v.n_pages || v.slots[row] != kNoSlot) return true;
  if (v.n_resident == v.n_slots) kv_->evict(stream, stalest(v, row));
  return recall(stream, row);
}

bool ColdPages::truncate(uint32_t n_tokens) {
  const uint32_t n_whole = n_tokens / kPageTokens, n_streams = kv_->shape().n_streams();
  const bool cuts_page = n_tokens % kPageTokens != 0;
  for (uint32_t s = 0; cuts_page && s < n_streams; ++s) {
    if (has_stream(s) && !can_reopen(s, n_whole)) return false;
  }
  for (uint32_t s = 0; cuts_page && s < n_streams; ++s) {
    if (has_stream(s) && !reopen(s, n_whole)) return false;  // its copy is damaged
  }
  for (uint32_t s = 0; s < n_streams; ++s) {
    const StreamView v = kv_->stream(s);
    for (uint32_t row = n_whole; has_stream(s) && row < v.n_pages; ++row) {
      if (v.copies[row] != kNoCopy) store_->release(v.copies[row]);
      if (v.slots[row] != kNoSlot) v.copies[row] = kNoCopy;  // of the others the tables still need to know
    }
  }
  kv_->truncate(n_tokens);
  return true;
}

}  // namespace weir
