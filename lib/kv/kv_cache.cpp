// Page tables and the slot pool.
#include "kv/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "ops/page_digest.h"

namespace weir {
namespace {

void move_rows(const RowColumns& c, size_t to, size_t from, size_t n) {
#define WEIR_ROW(name, type, saved) \
  if (c.name != nullptr) std::memmove(c.name + to, c.name + from, n * sizeof(type));
#include "kv/columns.inc"
}

}  // namespace

void KvCache::set_shape(const KvShape& shape, LeftSums* left, AttnHistory* history) {
  shape_ = shape;
  left_ = left;
  history_ = history;
  if (left != nullptr) left->set_shape(shape_.windows, shape.n_kv_heads, shape.head_dim);
  if (history != nullptr) history->set_shape(shape.history, shape.n_kv_heads, shape.head_dim);
}

void KvCache::lay_out(const KvShape& shape, Arena& pages, Arena& digests, Arena& tables) {
  set_shape(shape, left_, history_);
  Arenas arenas = {pages, digests, tables, tables, tables, tables, tables};
  lay_out(arenas);
}

void KvCache::lay_out(Arenas& arenas) {
  const KvShape& shape = shape_;
  Arena &pages = arenas.pages, &digests = arenas.digests, &tables = arenas.tables, &host = arenas.host;
  has_tables_ = false;
  const uint64_t rows = shape.n_rows(), slots = shape.n_slots();
  n_slots_ = static_cast<uint32_t>(slots);
  n_ruled_ = static_cast<uint32_t>(shape.n_streams() - shape.n_local_streams());
  pool_ = pages.take<uint16_t>(slots * page_elements());
  const bool has_open = shape.open_page_bytes() != 0;
  open_ = has_open ? pages.take<uint16_t>(shape.open_bytes() / sizeof(uint16_t)) : nullptr;
  digests_ =
      shape.digest != DigestKind::kNone
          ? digests.take<uint16_t>((shape.recalls() ? rows : slots) * digest_elements(shape.digest, shape.head_dim))
          : nullptr;
#define WEIR_ROW(name, type, saved) t_.name = tables.take<type>(rows);
#define WEIR_ROW_IF(name, type, is_there, saved) t_.name = is_there ? tables.take<type>(rows) : nullptr;
#define WEIR_HOST_ROW(name, type, is_there, none) name##_ = is_there ? host.take<type>(rows) : nullptr;
#define WEIR_STREAM(name, is_there) t_.name = is_there ? tables.take<uint32_t>(shape.n_streams()) : nullptr;
#define WEIR_SLOT(name) t_.name = tables.take<uint32_t>(slots);
#define WEIR_BOUND(name, n) t_.name = tables.take<uint32_t>(n);
#include "kv/columns.inc"
  if (shape.slots_are_rows()) t_.slot_begin = t_.row_begin;
  t_.n_layers = shape.n_layers;
  t_.n_kv_heads = shape.n_kv_heads;
  t_.ruled_stream = shape.last_ruled_stream();
  t_.has_windows = shape.window != 0 || shape.windows.any();
  t_.front_pages = shape.windows.sink_pages();
  t_.global_every = shape.window != 0 ? shape.global_every : 0;
  row_per_stream_ = shape.recalls() ? host.take<uint32_t>(shape.n_streams()) : nullptr;
  pool_rows_ = shape.one_pool ? host.take<uint32_t>(shape.n_streams()) : nullptr;
  if (shape.recalls()) {
    rings_.lay_out(shape.n_local_streams(), shape.pages_per_stream, false, host);
  } else {
    rings_.lay_out(shape.n_archived_streams(), shape.archive_entries(), true, host);
  }
  spare_page_ = shape.recalls() || shape.archive_pages != 0
                    ? host.take<uint16_t>(max_block_bytes(static_cast<uint32_t>(shape.page_bytes())) / sizeof(uint16_t))
                    : nullptr;
}

void KvCache::wipe_pages() {
  if (pages_elsewhere_ || !has_tables_) return;
  const size_t digest_bytes = digest_elements(shape_.digest, shape_.head_dim) * sizeof(uint16_t);
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    for (uint32_t row = 0; row < t_.n_pages[s]; ++row) {
      const uint32_t slot = t_.slots[at(s, row)];
      if (slot != kNoSlot) wipe(page_data(slot), shape_.page_bytes());
      if (digests_ != nullptr && (slot != kNoSlot || shape_.recalls()))
        wipe(digest_data(digest_index(s, row)), digest_bytes);
    }
  }
  if (open_ != nullptr) wipe(open_, shape_.open_bytes());
  if (spare_page_ != nullptr) wipe(spare_page_, max_block_bytes(static_cast<uint32_t>(shape_.page_bytes())));
}

void KvCache::free_slot(uint32_t stream, uint32_t slot) {
  t_.free_slots[top_free(stream)] = slot;
  if (pages_elsewhere_) return;
  wipe(page_data(slot), shape_.page_bytes());
  if (digests_ != nullptr && !shape_.recalls())
    wipe(digest_data(slot), digest_elements(shape_.digest, shape_.head_dim) * sizeof(uint16_t));
}

// What fills a page up to a line of memory: whole pages are stored, hashed and saved.
void KvCache::clear_rest(uint32_t slot) {
  const size_t n = kv_page_used_bytes(shape_.format, shape_.head_dim);
  if (!pages_elsewhere_) std::memset(reinterpret_cast<std::byte*>(page_data(slot)) + n, 0, shape_.page_bytes() - n);
}

// The order in which streams take their slots; the last entry of a stream is its first slot.
void KvCache::order_slots() {
  const uint32_t n_streams = shape_.n_streams();
  const auto first_free = [&](uint32_t s, uint32_t k) -> uint32_t& {
    return t_.free_slots[t_.slot_begin[s + 1] - 1 - k];
  };
  uint32_t most = 0, next = 0;
  for (uint32_t s = 0; s < n_streams; ++s) {
    const uint32_t n = t_.slot_begin[s + 1] - t_.slot_begin[s];
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
      const uint32_t end = std::min(turn + kTurn, t_.slot_begin[s + 1] - t_.slot_begin[s]);
      for (uint32_t k = turn; k < end; ++k) first_free(s, k) = next++;
    }
  }
}

void KvCache::reset() {
  wipe_pages();
  uint32_t first_row = 0, first = 0;
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    const StreamSpec spec = shape_.spec(s);
    t_.row_begin[s] = first_row;
    t_.slot_begin[s] = first;
    t_.window[s] = spec.window;
    first_row += spec.rows;
    first += is_in_pool(s) ? 0 : spec.slots;
  }
  t_.row_begin[shape_.n_streams()] = first_row;
  t_.slot_begin[shape_.n_streams()] = first;
  order_slots();
  for (uint32_t i = first; i < n_slots_; ++i) t_.free_slots[i] = first + n_slots_ - 1 - i;
  n_in_pool_ = 0;
  // A device opens rows itself, so those that are not in use have no copies either.
#define WEIR_HOST_ROW(name, type, is_there, none) \
  if (name##_ != nullptr) std::fill_n(name##_, shape_.n_rows(), none);
#define WEIR_STREAM(name, is_there) \
  if (t_.name != nullptr) std::fill_n(t_.name, shape_.n_streams(), 0u);
#include "kv/columns.inc"
  rings_.reset();
  std::fill_n(opened_, kOpenPages, OpenPage{});
  n_moves_ = 0;
  prompt_begin_ = 0;
  n_tokens_ = 0;
  n_reserved_ = 0;
  n_tokens_published_.store(0, std::memory_order_relaxed);
  pages_resident_.store(0, std::memory_order_relaxed);
  pages_cold_.store(0, std::memory_order_relaxed);
  has_tables_ = true;
}

void KvCache::copy_from(const Part& part, uint32_t /*n_tokens*/) {
  const auto& other = static_cast<const KvCache&>(part);
#define WEIR_STREAM(name, is_there) \
  if (t_.name != nullptr) std::copy_n(other.t_.name, shape_.n_streams(), t_.name);
#define WEIR_SLOT(name) std::copy_n(other.t_.name, n_slots_, t_.name);
#include "kv/columns.inc"
  n_in_pool_ = other.n_in_pool_;
  rings_.copy_from(other.rings_);
  std::copy_n(other.opened_, kOpenPages, opened_);
  std::copy_n(other.moves_, n_moves_ = other.n_moves_, moves_);
  prompt_begin_ = other.prompt_begin_;
  if (open_ != nullptr && !pages_elsewhere_) std::memcpy(open_, other.open_, shape_.open_bytes());
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) copy_stream(other, s);
  set_counters(other.counters());
  commit();
  pages_slid_ = other.pages_slid_;
  if (events_.events != nullptr)
    std::copy_n(other.events_.events, std::min<uint64_t>(pages_evicted(), events_.capacity), events_.events);
}

void KvCache::copy_stream(const KvCache& other, uint32_t stream) {
  const size_t first = at(stream, 0);
  const auto copy = [&](auto* to, const auto* from) {
    if (to != nullptr) std::copy_n(from + first, t_.n_pages[stream], to + first);
  };
#define WEIR_ROW(name, type, saved) copy(t_.name, other.t_.name);
#define WEIR_HOST_ROW(name, type, is_there, none) copy(name##_, other.name##_);
#include "kv/columns.inc"
  const size_t n_digest = digest_elements(shape_.digest, shape_.head_dim);
  for (uint32_t row = 0; !pages_elsewhere_ && row < t_.n_pages[stream]; ++row) {
    const uint32_t slot = t_.slots[first + row];
    if (slot != kNoSlot) std::memcpy(page_data(slot), other.page_keys(slot), shape_.page_bytes());
    const size_t digest = digest_index(stream, row) * n_digest;
    if (digests_ != nullptr) std::copy_n(other.digests_ + digest, n_digest, digests_ + digest);
  }
}

KvView KvCache::view(uint32_t layer) const {
  KvView v;
  v.pool = pool_;
  v.format = shape_.format;
  v.open = open_ == nullptr ? nullptr : open_ + shape_.first_stream(layer) * open_elements();
  v.open_half = shape_.n_streams() * open_elements();
  v.digest_by_row = shape_.recalls();
  v.digest = shape_.digest;
  v.digests = digests_;
  if (v.digest_by_row && digests_ != nullptr)
    v.digests += row_base(layer) * digest_elements(shape_.digest, shape_.head_dim);
  v.slots = t_.slots + row_base(layer);
  v.first_pos = t_.first_pos + row_base(layer);
  v.len = t_.len + row_base(layer);
  v.n_pages = n_pages_of(layer);
  v.capacity = shape_.capacity(layer);
  v.n_kv_heads = shape_.n_kv_heads;
  v.head_dim = shape_.head_dim;
  return v;
}

StreamView KvCache::stream(uint32_t index) const {
  const size_t i = at(index, 0);
  StreamView v = {};
  static_cast<RowColumns&>(v) = t_.from(i);
#define WEIR_HOST_ROW(name, type, is_there, none) v.name = name##_ == nullptr ? nullptr : name##_ + i;
#include "kv/columns.inc"
  v.n_pages = t_.n_pages[index];
  v.capacity = shape_.recalls() ? capacity(index) : n_slots_of(index);
  v.n_resident = resident(index);
  v.n_slots = n_slots_of(index);
  v.n_free = n_free(index);
  return v;
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
    if (t_.n_pages[s] + opens > capacity(s) || !can_open(s, opens)) {
      return fail(WEIR_ERR_INTERNAL, "stream %u has %u of %u pages, %u of %u of them in the pool, and must open %u", s,
                  t_.n_pages[s], capacity(s), resident(s), n_slots_of(s), opens);
    }
  }
  n_reserved_ = n_tok;
  open_for(n_tokens_ + n_tok);
  const uint32_t in_page = n_tokens_ % kPageTokens;
  for (uint32_t s = 0; s < n_streams; ++s) {
    uint32_t left = n_tok;
    t_.append_row[s] = in_page != 0 ? t_.n_pages[s] - 1 : t_.n_pages[s];
    if (in_page != 0) {
      const size_t open = at(s, t_.n_pages[s] - 1);
      const uint32_t take = std::min(left, kPageTokens - in_page);
      t_.len[open] += take;
      if ((flags & kPagePrompt) != 0) t_.flags[open] |= flags;
      left -= take;
    }
    for (uint32_t pos = n_tokens_ + (n_tok - left); left > 0; pos += kPageTokens) {
      const uint32_t slot = t_.free_slots[top_free(s)];
      const size_t row = at(s, t_.n_pages[s]++);
      change_resident(s, 1);
      clear_rest(slot);
      const uint32_t take = std::min(left, kPageTokens);
      t_.set(row, {.slots = slot, .first_pos = pos, .len = take, .flags = flags, .stamp = now});
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
    while (t_.n_pages[s] > 0 && t_.first_pos[at(s, t_.n_pages[s] - 1)] >= n_tokens) {
      const uint32_t slot = t_.slots[at(s, --t_.n_pages[s])];
      if (slot == kNoSlot) {
        uint32_t& copy = copies_[at(s, t_.n_pages[s])];
        if (copy != kNoCopy) pages_cold_.fetch_sub(1, std::memory_order_relaxed);
        copy = kNoCopy;
        continue;
      }
      change_resident(s, -1);
      free_slot(s, slot);
      ++freed;
    }
    // A step that is taken back was none. With recall, a stamp tells what matters in the current step.
    for (uint32_t i = 0; shape_.recalls() && i < t_.n_pages[s]; ++i)
      t_.stamp[at(s, i)] = std::min(t_.stamp[at(s, i)], n_tokens);
  }
  reopen(n_tokens);
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    if (t_.n_pages[s] == 0) continue;
    const uint32_t last = t_.n_pages[s] - 1;
    const size_t row = at(s, last);
    const uint32_t len = std::min(t_.len[row], n_tokens - t_.first_pos[row]);
    if (len != t_.len[row]) {
      t_.len[row] = len;
      if (digests_ != nullptr && !pages_elsewhere_ && t_.slots[row] != kNoSlot) rebuild_digest(s, last);
    }
  }
  n_tokens_ = n_tokens;
  n_reserved_ = 0;
  n_tokens_published_.store(n_tokens_, std::memory_order_relaxed);
  count_resident(-freed);
}

void KvCache::record_event(uint32_t stream, size_t row) {
  const uint64_t index = pages_evicted();
  const uint32_t layer = shape_.layer_of(stream), kv_head = stream - shape_.first_stream(layer);
  events_.events[index % events_.capacity] = {index,       layer,         kv_head,  t_.first_pos[row],
                                              t_.len[row], t_.flags[row], n_tokens_};
}

void KvCache::evict(uint32_t stream, uint32_t row) {
  const size_t i = at(stream, row);
  if (events_.events != nullptr) record_event(stream, i);
  if ((t_.flags[i] & kPagePrompt) != 0) ++prompt_pages_evicted_;
  if (shape_.recalls()) {
    make_cold(stream, row);
    if (copies_[i] == kNoCopy) lose(stream, row);
  } else {
    if (has_ring(stream)) {
      const bool is_kept = copy_of(stream, t_.first_pos[i] / kPageTokens) != kNoCopy;
      (is_kept ? pages_cold_ : pages_lost_).fetch_add(1, std::memory_order_relaxed);
    }
    remove_row(stream, row);
  }
  pages_evicted_.fetch_add(1, std::memory_order_relaxed);
}

uint32_t KvCache::row_of(uint32_t stream, uint32_t page) const {
  const uint32_t* first = t_.first_pos + at(stream, 0);
  return static_cast<uint32_t>(std::lower_bound(first, first + t_.n_pages[stream], page * kPageTokens) - first);
}

bool KvCache::holds(uint32_t stream, uint32_t page) const {
  const uint32_t row = row_of(stream, page);
  return row < t_.n_pages[stream] && t_.first_pos[at(stream, row)] == page * kPageTokens;
}

uint32_t KvCache::slot_of(uint32_t stream, uint32_t page) const {
  const uint32_t row = row_of(stream, page);
  const bool is_there = row < t_.n_pages[stream] && t_.first_pos[at(stream, row)] == page * kPageTokens;
  return is_there ? t_.slots[at(stream, row)] : kNoSlot;
}

uint32_t KvCache::insert_row(uint32_t stream, uint32_t row, uint32_t first_pos) {
  const uint32_t slot = t_.free_slots[top_free(stream)];
  const size_t i = at(stream, row);
  clear_rest(slot);
  move_rows(t_, i + 1, i, t_.n_pages[stream]++ - row);
  change_resident(stream, 1);
  t_.set(i, {.slots = slot, .first_pos = first_pos});
  count_resident(1);
  return slot;
}

void KvCache::put_back(uint32_t stream, uint32_t page) {
  const uint32_t row = row_of(stream, page);
  if (shape_.recalls() && window(stream) == 0) {
    (void)take_back(stream, row);
    return;
  }
  insert_row(stream, row, page * kPageTokens);
  const size_t i = at(stream, row);
  t_.len[i] = kPageTokens;
  t_.flags[i] = rings_.flag(page);
  t_.stamp[i] = t_.first_pos[i];
  if (copies_ != nullptr) copies_[i] = kNoCopy;
  if (window(stream) != 0) return;  // nobody counts these, or scores them
  t_.stamp[i] += kPageTokens;       // when it was sealed
  pages_cold_.fetch_sub(1, std::memory_order_relaxed);
  if (digests_ != nullptr) rebuild_digest(stream, row);
}

void KvCache::count_dropped(uint64_t n) {
  pages_lost_.fetch_add(n, std::memory_order_relaxed);
  pages_cold_.fetch_sub(n, std::memory_order_relaxed);
}

void KvCache::make_cold(uint32_t stream, uint32_t row) {
  uint32_t& slot = t_.slots[at(stream, row)];
  change_resident(stream, -1);
  free_slot(stream, slot);
  slot = kNoSlot;
  count_resident(-1);
  pages_cold_.fetch_add(1, std::memory_order_relaxed);
}

uint16_t* KvCache::take_back(uint32_t stream, uint32_t row) {
  const uint32_t slot = t_.free_slots[top_free(stream)];
  t_.slots[at(stream, row)] = slot;
  change_resident(stream, 1);
  count_resident(1);
  pages_cold_.fetch_sub(1, std::memory_order_relaxed);
  return page_data(slot);
}

void KvCache::lose(uint32_t stream, uint32_t row) {
  pages_lost_.fetch_add(1, std::memory_order_relaxed);
  t_.flags[at(stream, row)] &= ~uint32_t{kPageKept};  // steps want what is pinned
  pages_cold_.fetch_sub(1, std::memory_order_relaxed);
  if (digests_ == nullptr || pages_elsewhere_) return;
  // Any estimate from NaN is NaN, which counts as -inf.
  const size_t n = digest_elements(shape_.digest, shape_.head_dim);
  std::fill_n(digests_ + digest_index(stream, row) * n, n, uint16_t{0x7fc0});
}

void KvCache::change_resident(uint32_t stream, int32_t change) {
  if (t_.n_resident != nullptr) t_.n_resident[stream] += static_cast<uint32_t>(change);
  if (is_in_pool(stream)) n_in_pool_ += static_cast<uint32_t>(change);
}

uint32_t KvCache::n_out_of_window(uint32_t stream, uint32_t pos) const {
  if (window(stream) == 0) return 0;
  const uint32_t front = shape_.spec(stream).front_pages;
  uint32_t n = 0;
  for (; front + n < t_.n_pages[stream]; ++n) {
    const size_t i = at(stream, front + n);
    const bool is_open = front + n + 1 == t_.n_pages[stream] && t_.len[i] < kPageTokens;
    if (is_open || uint64_t{t_.first_pos[i]} + t_.len[i] + window(stream) > uint64_t{pos} + 1) break;
  }
  return n;
}

void KvCache::slide(uint32_t stream, uint32_t pos) {
  const uint32_t front = shape_.spec(stream).front_pages;
  for (uint32_t n = n_out_of_window(stream, pos); n > 0; --n) {
    const size_t i = at(stream, front);
    // On a device they were added before (DeviceSession::add_left).
    if (compensates() && left_->has(stream) && !pages_elsewhere_)
      left_->add_page(stream, shape_.format, page_keys(t_.slots[i]), t_.first_pos[i], t_.len[i]);
    remove_row(stream, front);
    ++pages_slid_;
  }
}

void KvCache::remove_row(uint32_t stream, uint32_t row) {
  const uint32_t n = --t_.n_pages[stream];
  const size_t i = at(stream, row);
  change_resident(stream, -1);
  free_slot(stream, t_.slots[i]);
  move_rows(t_, i, i + 1, n - row);
  count_resident(-1);
}

void KvCache::set_open_page_flags(uint32_t flags) {
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    if (t_.n_pages[s] != 0) t_.flags[at(s, t_.n_pages[s] - 1)] = flags;
  }
}

void KvCache::place_rows(uint32_t stream, uint32_t n_pages, uint32_t n_tokens) {
  uint32_t n_placed = 0;
  if (t_.n_resident != nullptr) t_.n_resident[stream] = 0;
  const size_t top = is_in_pool(stream) ? top_free(stream) : size_t{t_.slot_begin[stream + 1]} - 1;
  for (uint32_t row = 0; row < n_pages; ++row) {
    const size_t i = at(stream, row);
    t_.slots[i] = kNoSlot;
    if ((t_.flags[i] & kPlaced) != 0) {
      t_.slots[i] = t_.free_slots[top - n_placed++];
      clear_rest(t_.slots[i]);
    }
    t_.flags[i] &= ~kPlaced;
    t_.len[i] = std::min(kPageTokens, n_tokens - t_.first_pos[i]);
    if (copies_ != nullptr) copies_[i] = kNoCopy;
  }
  t_.n_pages[stream] = n_pages;
  change_resident(stream, static_cast<int32_t>(n_placed));
  count_resident(n_placed);
  pages_cold_.fetch_add(n_pages - n_placed, std::memory_order_relaxed);
}

void KvCache::set_n_tokens(uint32_t n_tokens) {
  opened_[n_tokens / kPageTokens % 2] = {n_tokens / kPageTokens, n_tokens % kPageTokens};
  n_tokens_ = n_tokens;
  n_reserved_ = 0;
  n_tokens_published_.store(n_tokens, std::memory_order_relaxed);
}

uint64_t KvCache::set_flags(uint32_t first, uint32_t end, uint32_t set, uint32_t clear) {
  uint64_t n = 0;
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    for (uint32_t row = 0; window(s) == 0 && row < t_.n_pages[s]; ++row) {
      const size_t i = at(s, row);
      if (t_.first_pos[i] >= end || t_.first_pos[i] + t_.len[i] <= first) continue;
      if (copies_ != nullptr && t_.slots[i] == kNoSlot && copies_[i] == kNoCopy) continue;
      t_.flags[i] = (t_.flags[i] & ~clear) | set;
      ++n;
    }
  }
  return n;
}

void KvCache::limit_stamps(uint32_t step) {
  for (uint32_t s = 0; s < shape_.n_streams(); ++s) {
    for (size_t i = at(s, 0); i < at(s, t_.n_pages[s]); ++i) t_.stamp[i] = std::min(t_.stamp[i], step);
  }
}

void KvCache::rebuild_digest(uint32_t stream, uint32_t row) {
  const size_t i = at(stream, row);
  if (shape_.digest != DigestKind::kMinMax && t_.len[i] < kPageTokens) return;
  digest_page(shape_.digest, keys_in(shape_.format, page_keys(t_.slots[i]), shape_.head_dim), t_.len[i],
              digests_ + digest_index(stream, row) * digest_elements(shape_.digest, shape_.head_dim));
}

}  // namespace weir
