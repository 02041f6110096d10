// Copies of pages that have left a window; see window_copies.h.
#include "kv/window_copies.h"

#include <algorithm>

namespace weir {

bool WindowCopies::is_resident(uint32_t stream, uint32_t page) const {
  const StreamView v = kv_->stream(stream);
  const uint32_t first = page * kPageTokens;
  return std::binary_search(v.first_pos, v.first_pos + v.n_pages, first);
}

bool WindowCopies::has(uint32_t stream, uint32_t page) const {
  return is_resident(stream, page) || copy_of(stream, page) != kNoCopy;
}

bool WindowCopies::has_all(uint32_t n_tokens) const {
  const uint32_t end = (n_tokens + kPageTokens - 1) / kPageTokens;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t page = kv_->first_page_seen(s, n_tokens); is_local(s) && page < end; ++page) {
      if (!has(s, page)) return false;
    }
  }
  return true;
}

void WindowCopies::forget(uint32_t stream, uint32_t page) {
  uint32_t& copy = copy_of(stream, page);
  if (copy != kNoCopy) store_->release(copy);
  copy = kNoCopy;
}

void WindowCopies::forget_from(uint32_t page) {
  const uint32_t end = kv_->shape().pages_per_stream;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t p = page; is_local(s) && p < end; ++p) forget(s, p);
  }
  oldest_ = std::min(oldest_, page);
}

// For a page, copies of older ones make room. Nobody asks where its copy is: its tag is that of a row without a copy,
// and it is compressed before any page that a step may want.
void WindowCopies::seal(uint32_t page, const uint16_t* pages) {
  const size_t page_elements = kv_->shape().page_bytes() / sizeof(uint16_t);
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    if (!is_local(s) || (pages == nullptr && !is_resident(s, page))) continue;
    const StreamView v = kv_->stream(s);
    // The pages of a window follow each other.
    const void* from =
        pages != nullptr ? pages + s * page_elements : kv_->page_keys(v.slots[page - v.first_pos[0] / kPageTokens]);
    const auto tag = static_cast<uint32_t>(kv_->row_index(s, 0));
    uint32_t& copy = copy_of(s, page);
    do {
      copy = kNoCopy;
    } while (!store_->put(s, page * kPageTokens, from, copy, tag, true).ok() && drop_one());
    oldest_ = std::min(oldest_, page);  // only now: what drop_one() was looking for may have been behind this page
  }
}

bool WindowCopies::drop_one() {
  if (kv_->shape().window == 0) return false;
  for (const uint32_t end = kv_->n_tokens() / kPageTokens; oldest_ < end; ++oldest_) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      if (!is_local(s) || copy_of(s, oldest_) == kNoCopy) continue;
      forget(s, oldest_);
      return true;
    }
  }
  return false;
}

void WindowCopies::look_at_losses() {
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t p = oldest_; is_local(s) && p < kv_->shape().pages_per_stream; ++p) {
      if (copy_of(s, p) != kNoCopy && store_->is_lost(copy_of(s, p))) forget(s, p);
    }
  }
}

// All of them are read: whoever goes back without the damaged ones must not meet another. A page that is cut must be
// there, for the next token goes into it.
bool WindowCopies::can_be_read(uint32_t n_tokens) {
  const uint32_t end = (n_tokens + kPageTokens - 1) / kPageTokens;
  bool all = true;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t page = kv_->first_page_seen(s, n_tokens); is_local(s) && page < end; ++page) {
      if (is_resident(s, page)) continue;
      if (copy_of(s, page) == kNoCopy) {
        all = all && (page + 1) * kPageTokens <= n_tokens;
        continue;
      }
      if (store_->get(copy_of(s, page), s, page * kPageTokens, kv_->spare_page()).ok()) continue;
      forget(s, page);
      all = false;
    }
  }
  return all;
}

bool WindowCopies::reopen(uint32_t page) {
  bool came = true;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s)
    came &= !is_local(s) || is_resident(s, page) || bring_back(s, page);
  return came;
}

bool WindowCopies::bring_back(uint32_t n_tokens) {
  bool came = true;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    const uint32_t first = kv_->first_page_seen(s, n_tokens);
    // The pages of a window follow each other.
    for (uint32_t page = n_tokens / kPageTokens; is_local(s) && page-- > first;) {
      if (is_resident(s, page)) continue;
      const bool has_copy = copy_of(s, page) != kNoCopy;
      if (bring_back(s, page)) continue;
      came &= !has_copy;
      break;
    }
  }
  forget_from(n_tokens / kPageTokens);
  return came;
}

bool WindowCopies::bring_back(uint32_t stream, uint32_t page) {
  const uint32_t copy = copy_of(stream, page);
  if (copy == kNoCopy) return false;
  uint16_t* const to = kv_->prepend(stream, page * kPageTokens, kPageTokens);
  const uint32_t slot = kv_->stream(stream).slots[0];
  const Status status =
      store_->get(copy, stream, page * kPageTokens, pool_ == nullptr ? static_cast<void*>(to) : pool_->buffer());
  if (status.ok() && (pool_ == nullptr || pool_->write(slot))) return true;
  forget(stream, page);
  kv_->remove_first(stream);
  return false;
}

}  // namespace weir
