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
    if (uint32_t* copies = kv_->archive(s)) std::fill_n(copies, kv_->shape().archive_entries(), kNoCopy);
  }
  std::fill_n(kv_->archive_flags(), kv_->shape().archive_entries(), uint8_t{0});
  kv_->archive_span() = {};
  n_losses_ = store_->n_losses();
}

void PageArchive::forget(uint32_t stream, uint32_t page) {
  if (kv_->archive(stream) == nullptr || kv_->copy_of(stream, page) == kNoCopy) return;
  uint32_t& copy = kv_->archive_entry(stream, page);
  store_->release(copy);
  copy = kNoCopy;
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
    const KvCache::ArchiveSpan span = kv_->archive_span();
    for (uint32_t page = span.first; kv_->archive(s) != nullptr && page < span.end; ++page) {
      const uint32_t copy = kv_->copy_of(s, page);
      if (copy != kNoCopy && store_->is_lost(copy)) lose(s, page);
    }
  }
}

// The copy of a page cannot be read.
void PageArchive::lose(uint32_t stream, uint32_t page) {
  forget(stream, page);
  if (!kv_->holds(stream, page)) kv_->count_dropped(1);
}

void PageArchive::drop(uint32_t stream, uint32_t page) {
  uint32_t& copy = kv_->archive_entry(stream, page);
  store_->drop(copy);
  copy = kNoCopy;
  if (!kv_->holds(stream, page)) kv_->count_dropped(1);  // or it is in the pool
}

bool PageArchive::drop_one() {
  KvCache::ArchiveSpan& span = kv_->archive_span();
  for (; span.first < span.end; ++span.first) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      if (kv_->archive(s) == nullptr || kv_->copy_of(s, span.first) == kNoCopy) continue;
      drop(s, span.first);
      return true;
    }
  }
  return false;
}

// Entries for the copies of a page, and of none that is older than the ring.
void PageArchive::make_entries(uint32_t page) {
  KvCache::ArchiveSpan& span = kv_->archive_span();
  const uint32_t n = kv_->shape().archive_entries(), first = page + 1 - std::min(page + 1, n);
  for (; span.first < std::min(first, span.end); ++span.first) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      if (kv_->archive(s) != nullptr && kv_->copy_of(s, span.first) != kNoCopy) drop(s, span.first);
    }
  }
  // What drop_one() was looking for may have been behind this page.
  span.first = std::max(std::min(span.first, page), first);
  span.end = std::max(span.end, page + 1);
}

// Page by page, so that it makes no difference how many pages are sealed together.
void PageArchive::seal(uint32_t first) {
  const uint32_t begin = first / kPageTokens, end = kv_->n_tokens() / kPageTokens;
  for (uint32_t page = begin; page < end; ++page) {
    for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
      if (kv_->archive(s) == nullptr) continue;
      const StreamView v = kv_->stream(s);
      const uint32_t row = kv_->row_of(s, page);
      const uint16_t* data = kv_->page_keys(v.slots[row]);
      make_entries(page);
      kv_->set_archive_flag(page, static_cast<uint8_t>(v.flags[row] & kPagePrompt));
      uint32_t copy = kNoCopy;  // an entry only once it is there: drop_one() looks at those that are
      while (!store_->put(s, page * kPageTokens, data, copy).ok() && drop_one()) {
      }
      make_entries(page);
      kv_->archive_entry(s, page) = copy;
    }
  }
  if (begin < end) look_at_losses();
}

bool PageArchive::has(uint32_t stream, uint32_t page) const {
  if (kv_->holds(stream, page)) return true;
  return kv_->archive(stream) != nullptr && kv_->copy_of(stream, page) != kNoCopy;
}

bool PageArchive::read(uint32_t stream, uint32_t page, uint16_t* out) {
  if (kv_->holds(stream, page)) {
    std::memcpy(out, kv_->page_keys(kv_->stream(stream).slots[kv_->row_of(stream, page)]), kv_->shape().page_bytes());
    return true;
  }
  if (!has(stream, page)) return false;
  if (store_->get(kv_->copy_of(stream, page), stream, page * kPageTokens, out).ok()) return true;
  look_at_losses();
  if (kv_->copy_of(stream, page) != kNoCopy) lose(stream, page);  // its bytes are damaged
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

// Their entries may be those of earlier pages from now on.
void PageArchive::drop_from(uint32_t page) {
  KvCache::ArchiveSpan& span = kv_->archive_span();
  for (uint32_t s = 0; s < kv_->shape().n_streams(); ++s) {
    for (uint32_t p = page; kv_->archive(s) != nullptr && p < span.end; ++p) {
      if (kv_->copy_of(s, p) != kNoCopy && !kv_->holds(s, p)) kv_->count_forgotten(1);
      forget(s, p);
    }
  }
  for (uint32_t p = page; p < span.end; ++p) kv_->set_archive_flag(p, 0);
  span.end = std::min(span.end, page);
  span.first = std::min(span.first, span.end);
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
    const uint32_t first = kv_->archive_span().first;
    for (uint32_t page = n_whole; page-- > first && kv_->stream(s).n_pages < kv_->stream(s).capacity;) {
      if (!kv_->holds(s, page) && has(s, page)) came &= put_back(s, page);
    }
  }
  return came;
}

bool PageArchive::get_block(uint32_t stream, uint32_t page, std::byte* block, uint32_t& block_bytes,
                            SpillPlace& place) {
  const uint32_t copy = kv_->copy_of(stream, page);
  if (copy == kNoCopy) return false;
  if (store_->get_block(copy, stream, page * kPageTokens, block, block_bytes, place).ok()) return true;
  look_at_losses();
  if (kv_->copy_of(stream, page) != kNoCopy) lose(stream, page);
  return false;
}

bool PageArchive::find_place(uint32_t stream, uint32_t page, SpillPlace& place) const {
  const uint32_t copy = kv_->archive(stream) != nullptr ? kv_->copy_of(stream, page) : kNoCopy;
  return copy != kNoCopy && store_->find_place(copy, place);
}

Status PageArchive::put(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes,
                        SpillPlace place) {
  uint32_t copy = kNoCopy;
  Status status;
  make_entries(page);
  do {
    status = store_->put_block(stream, page * kPageTokens, block, block_bytes, place, nullptr, copy);
  } while (status.code() == WEIR_ERR_BUDGET && drop_one());
  make_entries(page);
  kv_->archive_entry(stream, page) = copy;
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
