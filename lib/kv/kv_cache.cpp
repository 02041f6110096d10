// Page tables and the slot pool.
#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace weir {

void KvCache::lay_out(const KvShape& shape, Arena& pages, Arena& digests, Arena& tables, Arena& host) {
  shape_ = shape;
  has_tables_ = false;
  const uint64_t rows = shape.n_rows();
  pool_ = pages.take<uint16_t>(shape.n_slots() * page_elements());
  digests_ = shape.digest != DigestKind::kNone ? digests.take<uint16_t>((shape.recalls() ? rows : shape.n_slots()) *
                                                                        digest_elements(shape.digest, shape.head_dim))
                                               : nullptr;
  history_.lay_out(shape.history, shape.n_kv_heads, shape.head_dim, digests);
  slots_ = tables.take<uint32_t>(rows);
  first_pos_ = tables.take<uint32_t>(rows);
  len_ = tables.take<uint32_t>(rows);
  flags_ = tables.take<uint32_t>(rows);
  stamp_ = tables.take<uint32_t>(rows);
  last_score_ = tables.take<float>(rows);
  prompt_score_ = shape.prompt_scores ? tables.take<float>(rows) : nullptr;
  copies_ = shape.recalls() ? host.take<uint32_t>(rows) : nullptr;
  n_pages_ = tables.take<uint32_t>(shape.n_streams());
  append_row_ = tables.take<uint32_t>(shape.n_streams());
  n_resident_ = shape.recalls() ? tables.take<uint32_t>(shape.n_streams()) : nullptr;
  row_per_stream_ = shape.recalls() ? host.take<uint32_t>(shape.n_streams()) : nullptr;
  pool_rows_ = shape.one_pool ? host.take<uint32_t>(shape.n_streams()) : nullptr;
  window_copies_ = n_window_copies() != 0 ? host.take<uint32_t>(n_window_copies()) : nullptr;
  spare_page_ = shape.recalls() || shape.archive_pages != 0
                    ? host.take<uint16_t>(max_block_bytes(static_cast<uint32_t>(shape.page_bytes())) / sizeof(uint16_t))
                    : nullptr;
  archive_ =
      shape.archive_pages != 0 ? tables.take<uint32_t>(shape.n_archived_streams() * shape.archive_entries()) : nullptr;
  archive_flags_ = shape.archive_pages != 0 ? tables.take<uint8_t>(shape.archive_entries()) : nullptr;
  free_ = tables.take<uint32_t>(shape.n_slots());
  row_begin_ = tables.take<uint32_t>(shape.n_streams() + 1);
  slot_begin_ = shape.slots_are_rows() ? row_begin_ : tables.take<uint32_t>(shape.n_streams() + 1);
  window_ = tables.take<uint32_t>(shape.n_streams());
  left_.lay_out(shape_.windows, shape.head_dim, tables);
}

void KvCache::wipe_pages() {
  if (pages_elsewhere_ || !has_tables_) return;
  const size_t digest_bytes = digest_elements(shape_.digest, shape_.head_dim) * sizeof(uint16_t);
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    for (uint32_t row = 0; row < n_pages_[s]; ++row) {
      const uint32_t slot = slots_[at(s, row)];
      if (slot != kNoSlot) wipe(page_data(slot), shape_.page_bytes());
      if (digests_ != nullptr && (slot != kNoSlot || shape_.recalls()))
        wipe(digest_data(digest_index(s, row)), digest_bytes);
    }
  }
  if (spare_page_ != nullptr) wipe(spare_page_, max_block_bytes(static_cast<uint32_t>(shape_.page_bytes())));
}

void KvCache::free_slot(uint32_t stream, uint32_t slot) {
  free_[top_free(stream)] = slot;
  if (pages_elsewhere_) return;
  wipe(page_data(slot), shape_.page_bytes());
  if (digests_ != nullptr && !shape_.recalls())
    wipe(digest_data(slot), digest_elements(shape_.digest, shape_.head_dim) * sizeof(uint16_t));
}

// The order in which streams take their slots; the last entry of a stream is its first slot.
void KvCache::order_slots() {
  const uint32_t n_streams = shape_.n_streams();
  const auto first_free = [&](uint32_t s, uint32_t k) -> uint32_t& { return free_[slot_begin_[s + 1] - 1 - k]; };
  uint32_t most = 0, next = 0;
  for (uint32_t s = 0; s < n_streams; ++s) {
    const uint32_t n = slot_begin_[s + 1] - slot_begin_[s];
    most = std::max(most, n);
    // On a device a stream's slots are contiguous: a GPU that attends a stream touches few of the large pages of its
    // address translation then.
    for (uint32_t k = 0; pages_elsewhere_ && k < n; ++k) first_free(s, k) = next++;
  }
  // In host memory the streams take turns, some pages each: the pool fills from its beginning, and a short conversation
  // touches little of it, however large the system's pages are.
  constexpr uint32_t kTurn = 16;
  for (uint32_t turn = 0; !pages_elsewhere_ && turn < most; turn += kTurn) {
    for (uint32_t s = 0; s < n_streams; ++s) {
      const uint32_t end = std::min(turn + kTurn, slot_begin_[s + 1] - slot_begin_[s]);
      for (uint32_t k = turn; k < end; ++k) first_free(s, k) = next++;
    }
  }
}

void KvCache::reset() {
  wipe_pages();
  uint32_t first_row = 0, first = 0;
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    const uint32_t n_slots = is_in_pool(s) ? 0 : n_slots_of(s);
    row_begin_[s] = first_row;
    slot_begin_[s] = first;
    window_[s] = window(s);
    first_row += shape_.capacity(s / shape_.n_kv_heads);
    first += n_slots;
  }
  row_begin_[shape_.n_streams()] = first_row;
  slot_begin_[shape_.n_streams()] = first;
  order_slots();
  for (uint32_t i = first; i < shape_.n_slots(); ++i)
    free_[i] = first + static_cast<uint32_t>(shape_.n_slots()) - 1 - i;
  n_in_pool_ = 0;
  std::fill_n(n_pages_, shape_.n_streams(), 0u);
  if (n_resident_ != nullptr) std::fill_n(n_resident_, shape_.n_streams(), 0u);
  left_.reset();
  std::fill_n(append_row_, shape_.n_streams(), 0u);
  std::fill_n(window_copies_, n_window_copies(), kNoCopy);
  // A device opens rows itself, so those that are not in use have no copies either.
  if (copies_ != nullptr) std::fill_n(copies_, shape_.n_rows(), kNoCopy);
  history_.reset();
  n_tokens_ = 0;
  n_reserved_ = 0;
  n_tokens_published_.store(0, std::memory_order_relaxed);
  pages_resident_.store(0, std::memory_order_relaxed);
  pages_cold_.store(0, std::memory_order_relaxed);
  has_tables_ = true;
}

void KvCache::copy_from(const KvCache& other) {
  std::copy_n(other.n_pages_, shape_.n_streams(), n_pages_);
  if (n_resident_ != nullptr) std::copy_n(other.n_resident_, shape_.n_streams(), n_resident_);
  n_in_pool_ = other.n_in_pool_;
  std::copy_n(other.append_row_, shape_.n_streams(), append_row_);
  std::copy_n(other.free_, shape_.n_slots(), free_);
  std::copy_n(other.window_copies_, n_window_copies(), window_copies_);
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) copy_stream(other, s);
  if (archive_ != nullptr) {
    std::copy_n(other.archive_, shape_.n_archived_streams() * shape_.archive_entries(), archive_);
    std::copy_n(other.archive_flags_, shape_.archive_entries(), archive_flags_);
    archive_span_ = other.archive_span_;
  }
  left_.copy_from(other.left_);
  history_.copy_from(other.history_);
  set_counters(other.counters());
  commit();
  pages_slid_ = other.pages_slid_;
  if (events_.events != nullptr)
    std::copy_n(other.events_.events, std::min<uint64_t>(pages_evicted(), events_.capacity), events_.events);
}

void KvCache::copy_stream(const KvCache& other, uint32_t stream) {
  const size_t first = at(stream, 0);
  const auto copy = [&](auto* to, const auto* from) {
    if (to != nullptr) std::copy_n(from + first, n_pages_[stream], to + first);
  };
  copy(slots_, other.slots_);
  copy(first_pos_, other.first_pos_);
  copy(len_, other.len_);
  copy(flags_, other.flags_);
  copy(stamp_, other.stamp_);
  copy(last_score_, other.last_score_);
  copy(prompt_score_, other.prompt_score_);
  copy(copies_, other.copies_);
  const size_t n_digest = digest_elements(shape_.digest, shape_.head_dim);
  for (uint32_t row = 0; !pages_elsewhere_ && row < n_pages_[stream]; ++row) {
    const uint32_t slot = slots_[first + row];
    if (slot != kNoSlot) std::memcpy(page_data(slot), other.page_keys(slot), shape_.page_bytes());
    const size_t digest = digest_index(stream, row) * n_digest;
    if (digests_ != nullptr) std::copy_n(other.digests_ + digest, n_digest, digests_ + digest);
  }
}

KvView KvCache::view(uint32_t layer) const {
  KvView v;
  v.pool = pool_;
  v.digest_by_row = shape_.recalls();
  v.digest = shape_.digest;
  v.digests = digests_;
  if (v.digest_by_row && digests_ != nullptr)
    v.digests += row_base(layer) * digest_elements(shape_.digest, shape_.head_dim);
  v.slots = slots_ + row_base(layer);
  v.first_pos = first_pos_ + row_base(layer);
  v.len = len_ + row_base(layer);
  v.n_pages = n_pages_of(layer);
  v.capacity = shape_.capacity(layer);
  v.n_kv_heads = shape_.n_kv_heads;
  v.head_dim = shape_.head_dim;
  return v;
}

StreamView KvCache::stream(uint32_t index) const {
  const size_t i = at(index, 0);
  return {slots_ + i,
          first_pos_ + i,
          len_ + i,
          flags_ + i,
          stamp_ + i,
          last_score_ + i,
          prompt_score_ == nullptr ? nullptr : prompt_score_ + i,
          copies_ == nullptr ? nullptr : copies_ + i,
          n_pages_[index],
          shape_.recalls() ? capacity(index) : n_slots_of(index),
          resident(index),
          n_slots_of(index),
          n_free(index)};
}

KvTables KvCache::tables() const {
  return {slots_,
          first_pos_,
          len_,
          flags_,
          stamp_,
          last_score_,
          prompt_score_,
          n_pages_,
          append_row_,
          free_,
          n_resident_,
          row_begin_,
          slot_begin_,
          window_,
          shape_.n_layers,
          shape_.n_kv_heads,
          shape_.last_ruled_stream(),
          shape_.window != 0};
}

KvCounters KvCache::counters() const {
  return {n_tokens_,    pages_resident(), pages_resident_max(), pages_evicted(), prompt_pages_evicted_,
          pages_cold(), pages_lost()};
}

void KvCache::set_counters(const KvCounters& c) {
  n_tokens_ = c.n_tokens;
  n_reserved_ = 0;
  prompt_pages_evicted_ = c.prompt_pages_evicted;
  n_tokens_published_.store(c.n_tokens, std::memory_order_relaxed);
  pages_resident_.store(c.pages_resident, std::memory_order_relaxed);
  pages_resident_max_.store(c.pages_resident_max, std::memory_order_relaxed);
  pages_evicted_.store(c.pages_evicted, std::memory_order_relaxed);
  pages_cold_.store(c.pages_cold, std::memory_order_relaxed);
  pages_lost_.store(c.pages_lost, std::memory_order_relaxed);
}

uint32_t KvCache::pages_to_open(uint32_t n_tok) const {
  const uint32_t have = (n_tokens_ + kPageTokens - 1) / kPageTokens;
  const uint32_t want = (n_tokens_ + n_tok + kPageTokens - 1) / kPageTokens;
  return want - have;
}

void KvCache::count_resident(int64_t change) {
  const uint64_t now = pages_resident_.load(std::memory_order_relaxed) + static_cast<uint64_t>(change);
  pages_resident_.store(now, std::memory_order_relaxed);
  if (now > pages_resident_max_.load(std::memory_order_relaxed))
    pages_resident_max_.store(now, std::memory_order_relaxed);
}

Status KvCache::reserve(uint32_t n_tok, uint32_t flags, uint32_t now) {
  const uint32_t opens = pages_to_open(n_tok);
  const uint32_t n_streams = shape_.n_streams();
  for (uint32_t s = 0; s < n_streams; ++s) {
    if (n_pages_[s] + opens > capacity(s) || !can_open(s, opens)) {
      return fail(WEIR_ERR_INTERNAL, "stream %u has %u of %u pages, %u of %u of them in the pool, and must open %u", s,
                  n_pages_[s], capacity(s), resident(s), n_slots_of(s), opens);
    }
  }
  n_reserved_ = n_tok;
  const uint32_t in_page = n_tokens_ % kPageTokens;
  for (uint32_t s = 0; s < n_streams; ++s) {
    uint32_t left = n_tok;
    append_row_[s] = in_page != 0 ? n_pages_[s] - 1 : n_pages_[s];
    if (in_page != 0) {
      const size_t open = at(s, n_pages_[s] - 1);
      const uint32_t take = std::min(left, kPageTokens - in_page);
      len_[open] += take;
      if ((flags & kPagePrompt) != 0) flags_[open] |= flags;
      left -= take;
    }
    for (uint32_t pos = n_tokens_ + (n_tok - left); left > 0; pos += kPageTokens) {
      const uint32_t slot = free_[top_free(s)];
      const size_t row = at(s, n_pages_[s]++);
      change_resident(s, 1);
      const uint32_t take = std::min(left, kPageTokens);
      slots_[row] = slot;
      first_pos_[row] = pos;
      len_[row] = take;
      flags_[row] = flags;
      stamp_[row] = now;
      last_score_[row] = 0.0f;
      if (prompt_score_ != nullptr) prompt_score_[row] = 0.0f;
      if (copies_ != nullptr) copies_[row] = kNoCopy;
      left -= take;
    }
  }
  count_resident(int64_t{opens} * n_streams);
  return {};
}

void KvCache::commit() {
  n_tokens_ += n_reserved_;
  n_reserved_ = 0;
  n_tokens_published_.store(n_tokens_, std::memory_order_relaxed);
}

void KvCache::truncate(uint32_t n_tokens) {
  int64_t freed = 0;
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    while (n_pages_[s] > 0 && first_pos_[at(s, n_pages_[s] - 1)] >= n_tokens) {
      const uint32_t slot = slots_[at(s, --n_pages_[s])];
      if (slot == kNoSlot) {
        uint32_t& copy = copies_[at(s, n_pages_[s])];
        if (copy != kNoCopy) pages_cold_.fetch_sub(1, std::memory_order_relaxed);
        copy = kNoCopy;
        continue;
      }
      change_resident(s, -1);
      free_slot(s, slot);
      ++freed;
    }
    // A step that is taken back was none. With recall, a stamp tells what matters in the current step.
    for (uint32_t i = 0; shape_.recalls() && i < n_pages_[s]; ++i)
      stamp_[at(s, i)] = std::min(stamp_[at(s, i)], n_tokens);
    if (n_pages_[s] == 0) continue;
    const uint32_t last = n_pages_[s] - 1;
    const size_t row = at(s, last);
    const uint32_t len = std::min(len_[row], n_tokens - first_pos_[row]);
    if (len != len_[row]) {
      len_[row] = len;
      if (digests_ != nullptr && !pages_elsewhere_ && slots_[row] != kNoSlot) rebuild_digest(s, last);
    }
  }
  left_.cut(n_tokens);
  history_.truncate(n_tokens);
  n_tokens_ = n_tokens;
  n_reserved_ = 0;
  n_tokens_published_.store(n_tokens_, std::memory_order_relaxed);
  count_resident(-freed);
}

void KvCache::record_event(uint32_t stream, size_t row) {
  const uint64_t index = pages_evicted();
  const uint32_t layer = stream / shape_.n_kv_heads, kv_head = stream % shape_.n_kv_heads;
  events_.events[index % events_.capacity] = {index,     layer,       kv_head,  first_pos_[row],
                                              len_[row], flags_[row], n_tokens_};
}

void KvCache::evict(uint32_t stream, uint32_t row) {
  const size_t i = at(stream, row);
  if (events_.events != nullptr) record_event(stream, i);
  if ((flags_[i] & kPagePrompt) != 0) ++prompt_pages_evicted_;
  if (shape_.recalls()) {
    make_cold(stream, row);
    if (copies_[i] == kNoCopy) lose(stream, row);
  } else {
    if (archive(stream) != nullptr) {
      const bool is_kept = copy_of(stream, first_pos_[i] / kPageTokens) != kNoCopy;
      (is_kept ? pages_cold_ : pages_lost_).fetch_add(1, std::memory_order_relaxed);
    }
    remove_row(stream, row);
  }
  pages_evicted_.fetch_add(1, std::memory_order_relaxed);
}

uint32_t* KvCache::archive(uint32_t stream) const {
  const uint32_t layer = stream / shape_.n_kv_heads;
  if (archive_ == nullptr || !shape_.is_archived(layer)) return nullptr;
  uint32_t n_before = 0;
  for (uint32_t l = 0; l < layer; ++l) n_before += shape_.is_archived(l) ? shape_.n_kv_heads : 0;
  return archive_ + size_t{n_before + stream % shape_.n_kv_heads} * shape_.archive_entries();
}

uint32_t KvCache::copy_of(uint32_t stream, uint32_t page) const {
  if (page < archive_span_.first || page >= archive_span_.end) return kNoCopy;
  return archive(stream)[page % shape_.archive_entries()];
}

uint32_t KvCache::row_of(uint32_t stream, uint32_t page) const {
  const uint32_t* first = first_pos_ + at(stream, 0);
  return static_cast<uint32_t>(std::lower_bound(first, first + n_pages_[stream], page * kPageTokens) - first);
}

bool KvCache::holds(uint32_t stream, uint32_t page) const {
  const uint32_t row = row_of(stream, page);
  return row < n_pages_[stream] && first_pos_[at(stream, row)] == page * kPageTokens;
}

uint32_t KvCache::insert_row(uint32_t stream, uint32_t row, uint32_t first_pos) {
  const uint32_t slot = free_[top_free(stream)];
  const size_t i = at(stream, row), moved = (n_pages_[stream]++ - row) * sizeof(uint32_t);
  change_resident(stream, 1);
  for (uint32_t* column : {slots_, first_pos_, len_, flags_, stamp_}) std::memmove(column + i + 1, column + i, moved);
  std::memmove(last_score_ + i + 1, last_score_ + i, moved);
  if (prompt_score_ != nullptr) std::memmove(prompt_score_ + i + 1, prompt_score_ + i, moved);
  slots_[i] = slot;
  first_pos_[i] = first_pos;
  last_score_[i] = 0.0f;
  if (prompt_score_ != nullptr) prompt_score_[i] = 0.0f;
  count_resident(1);
  return slot;
}

void KvCache::put_back(uint32_t stream, uint32_t page) {
  const uint32_t row = row_of(stream, page);
  insert_row(stream, row, page * kPageTokens);
  const size_t i = at(stream, row);
  len_[i] = kPageTokens;
  flags_[i] = archive_flag(page);
  stamp_[i] = first_pos_[i] + kPageTokens;  // when it was sealed
  pages_cold_.fetch_sub(1, std::memory_order_relaxed);
  if (digests_ != nullptr) rebuild_digest(stream, row);
}

void KvCache::count_dropped(uint64_t n) {
  pages_lost_.fetch_add(n, std::memory_order_relaxed);
  pages_cold_.fetch_sub(n, std::memory_order_relaxed);
}

void KvCache::make_cold(uint32_t stream, uint32_t row) {
  uint32_t& slot = slots_[at(stream, row)];
  change_resident(stream, -1);
  free_slot(stream, slot);
  slot = kNoSlot;
  count_resident(-1);
  pages_cold_.fetch_add(1, std::memory_order_relaxed);
}

uint16_t* KvCache::take_back(uint32_t stream, uint32_t row) {
  const uint32_t slot = free_[top_free(stream)];
  slots_[at(stream, row)] = slot;
  change_resident(stream, 1);
  count_resident(1);
  pages_cold_.fetch_sub(1, std::memory_order_relaxed);
  return page_data(slot);
}

void KvCache::lose(uint32_t stream, uint32_t row) {
  pages_lost_.fetch_add(1, std::memory_order_relaxed);
  flags_[at(stream, row)] &= ~uint32_t{kPageKept};  // steps want what is pinned
  pages_cold_.fetch_sub(1, std::memory_order_relaxed);
  if (digests_ == nullptr || pages_elsewhere_) return;
  // Any estimate from NaN is NaN, which counts as -inf.
  const size_t n = digest_elements(shape_.digest, shape_.head_dim);
  std::fill_n(digests_ + digest_index(stream, row) * n, n, uint16_t{0x7fc0});
}

void KvCache::change_resident(uint32_t stream, int32_t change) {
  if (n_resident_ != nullptr) n_resident_[stream] += static_cast<uint32_t>(change);
  if (is_in_pool(stream)) n_in_pool_ += static_cast<uint32_t>(change);
}

uint32_t KvCache::n_out_of_window(uint32_t stream, uint32_t pos) const {
  const uint32_t front = shape_.front_pages(stream);
  uint32_t n = 0;
  for (; window(stream) != 0 && front + n < n_pages_[stream]; ++n) {
    const size_t i = at(stream, front + n);
    const bool is_open = front + n + 1 == n_pages_[stream] && len_[i] < kPageTokens;
    if (is_open || uint64_t{first_pos_[i]} + len_[i] + window(stream) > uint64_t{pos} + 1) break;
  }
  return n;
}

void KvCache::slide(uint32_t stream, uint32_t pos) {
  for (uint32_t n = n_out_of_window(stream, pos); n > 0; --n) {
    const size_t i = at(stream, shape_.front_pages(stream));
    if (left_.has(stream)) left_.add_page(stream, page_keys(slots_[i]), first_pos_[i], len_[i]);
    remove_row(stream, shape_.front_pages(stream));
    ++pages_slid_;
  }
}

uint16_t* KvCache::prepend(uint32_t stream, uint32_t first_pos, uint32_t len) {
  const uint32_t slot = insert_row(stream, 0, first_pos);
  const size_t i = at(stream, 0);
  len_[i] = len;
  flags_[i] = 0;
  stamp_[i] = first_pos;
  if (copies_ != nullptr) copies_[i] = kNoCopy;
  return page_data(slot);
}

void KvCache::remove_row(uint32_t stream, uint32_t row) {
  const uint32_t n = --n_pages_[stream];
  const size_t i = at(stream, row);
  const size_t moved = (n - row) * sizeof(uint32_t);
  change_resident(stream, -1);
  free_slot(stream, slots_[i]);
  for (uint32_t* column : {slots_, first_pos_, len_, flags_, stamp_}) std::memmove(column + i, column + i + 1, moved);
  std::memmove(last_score_ + i, last_score_ + i + 1, moved);
  if (prompt_score_ != nullptr) std::memmove(prompt_score_ + i, prompt_score_ + i + 1, moved);
  count_resident(-1);
}

void KvCache::set_open_page_flags(uint32_t flags) {
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    if (n_pages_[s] != 0) flags_[at(s, n_pages_[s] - 1)] = flags;
  }
}

void KvCache::place_rows(uint32_t stream, uint32_t n_pages, uint32_t n_tokens) {
  uint32_t n_placed = 0;
  if (n_resident_ != nullptr) n_resident_[stream] = 0;
  const size_t top = is_in_pool(stream) ? top_free(stream) : size_t{slot_begin_[stream + 1]} - 1;
  for (uint32_t row = 0; row < n_pages; ++row) {
    const size_t i = at(stream, row);
    slots_[i] = kNoSlot;
    if ((flags_[i] & kPlaced) != 0) slots_[i] = free_[top - n_placed++];
    flags_[i] &= ~kPlaced;
    len_[i] = std::min(kPageTokens, n_tokens - first_pos_[i]);
    if (copies_ != nullptr) copies_[i] = kNoCopy;
  }
  n_pages_[stream] = n_pages;
  change_resident(stream, static_cast<int32_t>(n_placed));
  count_resident(n_placed);
  pages_cold_.fetch_add(n_pages - n_placed, std::memory_order_relaxed);
}

void KvCache::set_n_tokens(uint32_t n_tokens) {
  n_tokens_ = n_tokens;
  n_reserved_ = 0;
  n_tokens_published_.store(n_tokens, std::memory_order_relaxed);
}

uint64_t KvCache::set_flags(uint32_t first, uint32_t end, uint32_t set, uint32_t clear) {
  uint64_t n = 0;
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    for (uint32_t row = 0; window(s) == 0 && row < n_pages_[s]; ++row) {
      const size_t i = at(s, row);
      if (first_pos_[i] >= end || first_pos_[i] + len_[i] <= first) continue;
      if (copies_ != nullptr && slots_[i] == kNoSlot && copies_[i] == kNoCopy) continue;
      flags_[i] = (flags_[i] & ~clear) | set;
      ++n;
    }
  }
  return n;
}

void KvCache::limit_stamps(uint32_t step) {
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    for (size_t i = at(s, 0); i < at(s, n_pages_[s]); ++i) stamp_[i] = std::min(stamp_[i], step);
  }
}

void KvCache::rebuild_digest(uint32_t stream, uint32_t row) {
  const size_t i = at(stream, row);
  if (shape_.digest != DigestKind::kMinMax && len_[i] < kPageTokens) return;
  digest_page(shape_.digest, page_keys(slots_[i]), len_[i], shape_.head_dim,
              digests_ + digest_index(stream, row) * digest_elements(shape_.digest, shape_.head_dim));
}

}  // namespace weir
