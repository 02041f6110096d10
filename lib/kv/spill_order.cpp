// Which page leaves the raw slots, and which one gets into them again.
//
// Raw pages are a heap by what their stamps were at some time, at first by their positions, which no stamp is below.
// Stamps grow: where that of the page in front has grown, it sinks to its new place, until the page in front is where
// it belongs. Then no other page's stamp is less, whatever the others' have become meanwhile, so that the page of the
// least stamp leaves, and nobody needs to look at all of them. The order is a total one, so what leaves does not depend
// on how the heap came about. Stamps are looked at only when a page has to leave: those of a device must be fetched.
#include <cstring>

#include "kv/spill_store.h"

namespace weir {

void SpillStore::set_stamps(const uint32_t* stamps) {
  const std::lock_guard lock(family_->mutex);
  stamps_ = stamps;
  stamps_fell_ = true;
}

void SpillStore::stamps_fell() {
  const std::lock_guard lock(family_->mutex);
  stamps_fell_ = true;
}

bool SpillStore::needs_stamps(uint32_t n_pages) const {
  const std::lock_guard lock(family_->mutex);
  return plan_.n_raw < max_pages_ && uint64_t{n_raw_} + n_pages > plan_.n_raw;
}

// --- the heap ------------------------------------------------------------------------------------------------------

// Without stamps, and of pages that no step wants: the number of the put.
uint32_t SpillStore::stamp_of(uint32_t index) const {
  const Entry& e = entries_[index];
  return stamps_ == nullptr || e.is_spare ? e.stamp : stamps_[e.tag];
}

bool SpillStore::leaves_before(uint32_t a, uint32_t b) const {
  const Entry &x = entries_[a], &y = entries_[b];
  if (x.is_spare != y.is_spare) return x.is_spare;
  if (x.stamp != y.stamp) return x.stamp < y.stamp;
  return x.tag != y.tag ? x.tag < y.tag : a < b;
}

void SpillStore::place_raw(uint32_t at, uint32_t index) {
  raw_[at] = index;
  entries_[index].prev = at;
}

// Puts a page into the heap at `at`, or nearer to the front.
void SpillStore::raise_raw(uint32_t at, uint32_t index) {
  for (; at > 0 && leaves_before(index, raw_[(at - 1) / 2]); at = (at - 1) / 2) place_raw(at, raw_[(at - 1) / 2]);
  place_raw(at, index);
}

// The same, or farther from the front.
void SpillStore::sink_raw(uint32_t at, uint32_t index) {
  for (uint32_t next = 2 * at + 1; next < n_raw_; next = 2 * at + 1) {
    if (next + 1 < n_raw_ && leaves_before(raw_[next + 1], raw_[next])) ++next;
    if (!leaves_before(raw_[next], index)) break;
    place_raw(at, raw_[next]);
    at = next;
  }
  place_raw(at, index);
}

void SpillStore::add_to_raw(uint32_t index, uint32_t position) {
  Entry& e = entries_[index];
  e.stamp = stamps_ == nullptr || e.is_spare ? n_puts_++ : position;
  raise_raw(n_raw_++, index);
}

void SpillStore::remove_raw(uint32_t index) {
  const uint32_t at = entries_[index].prev, last = raw_[--n_raw_];
  if (last == index) return;
  if (at > 0 && leaves_before(last, raw_[(at - 1) / 2])) {
    raise_raw(at, last);
  } else {
    sink_raw(at, last);
  }
}

// The raw page that leaves next; there are some.
uint32_t SpillStore::next_to_leave() {
  if (stamps_fell_) {
    for (uint32_t i = 0; i < n_raw_; ++i) entries_[raw_[i]].stamp = stamp_of(raw_[i]);
    for (uint32_t i = n_raw_ / 2; i-- > 0;) sink_raw(i, raw_[i]);
    stamps_fell_ = false;
  }
  for (;;) {
    const uint32_t index = raw_[0], stamp = stamp_of(index);
    if (entries_[index].stamp == stamp) return index;
    entries_[index].stamp = stamp;
    sink_raw(0, index);
  }
}

// --- becoming raw again --------------------------------------------------------------------------------------------

bool SpillStore::has_compressed() const {
  const std::lock_guard lock(family_->mutex);
  return stats_.pages_held > n_raw_;
}

uint32_t SpillStore::find_compressed(const SpillHandle* handles, const uint32_t* stamps, uint32_t begin, uint32_t n,
                                     uint32_t since) const {
  const std::lock_guard lock(family_->mutex);
  for (uint32_t i = begin; i < n; ++i) {
    if (stamps[i] < since || !is_page(handles[i])) continue;
    const Where where = entries_[handles[i]].where;
    if (where != Where::kRaw && where != Where::kLost) return i;
  }
  return n;
}

// Whether the page that would leave for this one was wanted longer ago, and has room. Blocks may move to the file for
// it, and this page with them.
bool SpillStore::can_become_raw(Lock& lock, uint32_t index) {
  if (plan_.n_raw == 0 || entries_[index].is_spare) return false;
  if (n_raw_ < plan_.n_raw) return true;
  const Entry& last = entries_[next_to_leave()];
  if (!last.is_spare && stamps_ != nullptr && last.stamp >= stamps_[entries_[index].tag]) return false;
  return free_cells(lock, plan_.worst_cells);
}

// A page in the queue is taken out first: whether it is still there must make no difference.
Status SpillStore::make_raw(SpillHandle handle, uint32_t stream, uint32_t position, bool& is_raw) {
  const std::lock_guard turn(put_mutex_);
  Lock lock(family_->mutex);
  if (!is_page(handle)) return fail(WEIR_ERR_INTERNAL, "the spill store holds no page %u", handle);
  Entry& e = entries_[handle];
  is_raw = e.where == Where::kRaw;
  const auto is_block = [&e] { return e.n_refs != 0 && (e.where == Where::kCells || e.where == Where::kFile); };
  if (is_raw || !can_become_raw(lock, handle)) return {};
  while (e.where >= Where::kQueued && e.where <= Where::kDone && queue_.n > 0) take_from_queue(lock);
  if (!is_block()) return {};
  const uint32_t free_slot = top_slot();
  Reader& reader = take_reader(lock);
  const Status status = read(lock, handle, stream, position, slot(free_slot), reader);
  give_reader(reader);
  WEIR_TRY(status);
  if (!is_block()) return {};  // it is gone or lost meanwhile
  hand_over(handle);
  if (e.where == Where::kCells) {
    remove(in_cells_, handle);
    free_for_sure_ += static_cast<int64_t>(SpillCells::cells_for(e.block_bytes));
    give_cells_back(e);
  } else {
    give_file_cells_back(e);
  }
  // Workers may have put slots on the stack meanwhile, as in put_block().
  const uint32_t taken = top_slot();
  --n_free_slots_;
  if (taken != free_slot) std::memcpy(slot(taken), slot(free_slot), plan_page_bytes_);
  e.first = taken;
  e.block_bytes = 0;
  e.where = Where::kRaw;
  e.was_read = false;
  add_to_raw(handle, position);
  tell(e, taken);
  stats_.stored_bytes += plan_page_bytes_;
  is_raw = true;
  if (n_raw_ > plan_.n_raw) retire(lock);
  return {};
}

}  // namespace weir
