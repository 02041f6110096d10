// Copies of pages that left for good; see page_archive.h.
#include "kv/page_archive.h"

#include <algorithm>
#include <cstring>

namespace weir {

void PageArchive::start(KvCache& kv, SpillStore& store) {
  kv_ = &kv;
  store_ = &store;
  forget_all();
}

void PageArchive::forget_all() {
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    if (uint32_t* copies = kv_->archive(s)) std::fill_n(copies, kv_->shape().archive_pages, kNoCopy);
  }
  std::fill_n(kv_->archive_flags(), kv_->shape().archive_pages, uint8_t{0});
  first_page_ = 0;
  n_losses_ = store_->n_losses();
}

void PageArchive::forget(uint32_t stream, uint32_t page) {
  uint32_t* copies = kv_->archive(stream);
  if (copies == nullptr || copies[page] == kNoCopy) return;
  store_->release(copies[page]);
  copies[page] = kNoCopy;
}

void PageArchive::reset() {
  store_->clear();  // whatever the tables say
  forget_all();
}

void PageArchive::look_at_losses() {
  const uint32_t n_losses = store_->n_losses();
  if (n_losses == n_losses_) return;
  n_losses_ = n_losses;
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    const uint32_t* copies = kv_->archive(s);
    for (uint32_t page = first_page_; copies != nullptr && page < kv_->shape().archive_pages; ++page) {
      if (copies[page] != kNoCopy && store_->is_lost(copies[page])) lose(s, page);
    }
  }
}

// The copy of a page cannot be read.
void PageArchive::lose(uint32_t stream, uint32_t page) {
  forget(stream, page);
  if (!kv_->holds(stream, page)) kv_->count_dropped(1);
}

bool PageArchive::drop_one() {
  for (; first_page_ < kv_->shape().archive_pages; ++first_page_) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      uint32_t* copies = kv_->archive(s);
      if (copies == nullptr || copies[first_page_] == kNoCopy) continue;
      store_->drop(copies[first_page_]);
      copies[first_page_] = kNoCopy;
      if (!kv_->holds(s, first_page_)) kv_->count_dropped(1);
      return true;
    }
  }
  return false;
}

// Page by page, so that it makes no difference how many pages are sealed together.
void PageArchive::seal(uint32_t first) {
  const uint32_t begin = first / kPageTokens, end = kv_->n_tokens() / kPageTokens;
  for (uint32_t page = begin; page < end; ++page) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      uint32_t* copies = kv_->archive(s);
      if (copies == nullptr) continue;
      const StreamView v = kv_->stream(s);
      const uint32_t row = kv_->row_of(s, page);
      const uint16_t* data = kv_->page_keys(v.slots[row]);
      kv_->archive_flags()[page] = static_cast<uint8_t>(v.flags[row] & kPagePrompt);
      while (!store_->put(s, page * kPageTokens, data, copies[page]).ok() && drop_one()) {
      }
      // Only now: what drop_one() was looking for may have been behind this page.
      first_page_ = std::min(first_page_, page);
    }
  }
  if (begin < end) look_at_losses();
}

bool PageArchive::has(uint32_t stream, uint32_t page) const {
  if (kv_->holds(stream, page)) return true;
  const uint32_t* copies = kv_->archive(stream);
  return copies != nullptr && copies[page] != kNoCopy;
}

bool PageArchive::read(uint32_t stream, uint32_t page, uint16_t* out) {
  if (kv_->holds(stream, page)) {
    std::memcpy(out, kv_->page_keys(kv_->stream(stream).slots[kv_->row_of(stream, page)]), kv_->shape().page_bytes());
    return true;
  }
  uint32_t* copies = kv_->archive(stream);
  if (copies == nullptr || copies[page] == kNoCopy) return false;
  if (store_->get(copies[page], stream, page * kPageTokens, out).ok()) return true;
  look_at_losses();
  if (copies[page] != kNoCopy) lose(stream, page);  // its bytes are damaged
  return false;
}

// Whether a page is there, or can come back when those after it are gone.
bool PageArchive::can_be_cut(uint32_t stream, uint32_t page) const {
  return kv_->holds(stream, page) || (has(stream, page) && kv_->row_of(stream, page) < kv_->stream(stream).capacity);
}

// Brings a page that left back into a free row; false: it is lost.
bool PageArchive::put_back(uint32_t stream, uint32_t page) {
  if (kv_->archive(stream) == nullptr) return false;
  uint16_t* const to = kv_->free_page(stream);
  if (!read(stream, page, to)) {
    wipe(to, kv_->shape().page_bytes());  // as free pages are
    return false;
  }
  kv_->put_back(stream, page);
  return true;
}

void PageArchive::drop_from(uint32_t page) {
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    const uint32_t* copies = kv_->archive(s);
    for (uint32_t p = page; copies != nullptr && p < kv_->n_tokens() / kPageTokens; ++p) {
      if (copies[p] != kNoCopy && !kv_->holds(s, p)) kv_->count_forgotten(1);
      forget(s, p);
    }
  }
}

bool PageArchive::truncate(uint32_t n_tokens, bool refill) {
  const uint32_t n_whole = n_tokens / kPageTokens, n_streams = kv_->shape().n_streams();
  const bool cuts_page = n_tokens % kPageTokens != 0;
  for (uint32_t s = 0; cuts_page && s < n_streams; ++s) {
    if (kv_->archive(s) != nullptr && !can_be_cut(s, n_whole)) return false;
  }
  drop_from(n_whole + (cuts_page ? 1 : 0));
  bool came = true;
  if (cuts_page) {
    kv_->truncate(std::min(kv_->n_tokens(), (n_whole + 1) * kPageTokens));
    for (uint32_t s = 0; s < n_streams; ++s)
      came &= kv_->archive(s) == nullptr || kv_->holds(s, n_whole) || put_back(s, n_whole);
    drop_from(n_whole);
  }
  kv_->truncate(came ? n_tokens : n_whole * kPageTokens);
  for (uint32_t s = 0; refill && s < n_streams; ++s) {
    for (uint32_t page = n_whole; page-- > first_page_ && kv_->stream(s).n_pages < kv_->stream(s).capacity;) {
      if (!kv_->holds(s, page) && has(s, page)) came &= put_back(s, page);
    }
  }
  return came;
}

bool PageArchive::get_block(uint32_t stream, uint32_t page, std::byte* block, uint32_t& block_bytes,
                            SpillPlace& place) {
  const uint32_t* copies = kv_->archive(stream);
  if (copies[page] == kNoCopy) return false;
  if (store_->get_block(copies[page], stream, page * kPageTokens, block, block_bytes, place).ok()) return true;
  look_at_losses();
  if (copies[page] != kNoCopy) lose(stream, page);
  return false;
}

bool PageArchive::find_place(uint32_t stream, uint32_t page, SpillPlace& place) const {
  const uint32_t* copies = kv_->archive(stream);
  return copies != nullptr && copies[page] != kNoCopy && store_->find_place(copies[page], place);
}

Status PageArchive::put(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes,
                        SpillPlace place) {
  uint32_t& copy = kv_->archive(stream)[page];
  Status status;
  do {
    status = store_->put_block(stream, page * kPageTokens, block, block_bytes, place, nullptr, copy);
  } while (status.code() == WEIR_ERR_BUDGET && drop_one());
  first_page_ = std::min(first_page_, page);  // as in seal()
  look_at_losses();
  return status;
}

Status PageArchive::put_block(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes,
                              SpillPlace place) {
  kv_->count_left(1);
  const Status status = put(stream, page, block, block_bytes, place);
  if (status.code() != WEIR_ERR_BUDGET) return status;
  kv_->count_dropped(1);
  return {};
}

Status PageArchive::copy_again(uint32_t stream, uint32_t page, SpillPlace place) {
  const StreamView v = kv_->stream(stream);
  const uint32_t row = kv_->row_of(stream, page);
  auto* const block = reinterpret_cast<std::byte*>(kv_->spare_page());
  const uint32_t n = store_->make_block(stream, page * kPageTokens, kv_->page_keys(v.slots[row]), block);
  const Status status = put(stream, page, block, n, place);
  return status.code() == WEIR_ERR_BUDGET ? Status() : status;
}

}  // namespace weir
