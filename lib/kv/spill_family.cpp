// A second store with the pages of another one, by sharing. What a copy can do later must not depend on what it shares,
// so it counts everything as if the bytes were its own: raw pages have their slots, and free_for_sure_ and file_room()
// leave out the cells that shared blocks would take. So whatever is handed over has room, and only a file can fail.
//
// Everything here happens under the family's mutex, files included: a block that goes from one file to another is a
// read and a write of a few KiB, and nobody can free or share it in between. Readers of files do not hold the mutex;
// they look again afterwards whether the block is where it was (SpillStore::read), and are waited for before a file is
// closed.
#include "kv/spill_family.h"

#include <cstring>
#include <thread>

#include "core/memory.h"
#include "kv/spill_store.h"

namespace weir {

Status SpillStore::create_copy(SpillStore& other) {
  family_ = other.family_;
  family_->n_users.fetch_add(1, std::memory_order_relaxed);
  WEIR_TRY(create(other.options_));
  copy_pages(other);
  return {};
}

void SpillStore::copy_pages(SpillStore& other) {
  const std::lock_guard turn(other.put_mutex_);
  Lock lock(family_->mutex);
  while (other.queue_.n > 0) other.take_from_queue(lock);
  // Whatever has left the queue while it was being compressed still has a slot.
  const auto is_quiet = [&] {
    for (uint32_t i = 0; i < other.plan_.n_entries; ++i) {
      if (other.entries_[i].where == Where::kGone) return false;
    }
    return true;
  };
  other.done_.wait(lock, is_quiet);

  std::memcpy(entries_, other.entries_, size_t{plan_.n_entries} * sizeof(*entries_));
  for (uint32_t i = 0; i < plan_.n_entries; ++i) {
    Entry& e = entries_[i];
    if (e.where == Where::kFree || e.where == Where::kLost) continue;
    if (e.owner == nullptr) e.owner = &other;
    if (e.where == Where::kFile) n_reserved_in_file_ += static_cast<uint32_t>(SpillFile::cells_for(e.block_bytes));
  }
  std::memcpy(free_slots_, other.free_slots_, size_t{other.n_free_slots_} * sizeof(*free_slots_));
  n_free_slots_ = other.n_free_slots_;
  n_slots_used_ = other.n_slots_used_;
  salt_ = other.salt_;
  free_entry_ = other.free_entry_;
  free_for_sure_ = other.free_for_sure_;
  std::memcpy(raw_, other.raw_, size_t{other.n_raw_} * sizeof(*raw_));
  n_raw_ = other.n_raw_;
  n_puts_ = other.n_puts_;
  stamps_fell_ = other.stamps_fell_;
  in_cells_ = other.in_cells_;
  stats_ = other.stats_;
  file_failed_ = other.file_failed_;
  n_losses_ = other.n_losses_;
}

void SpillStore::join_family() {
  const std::lock_guard lock(family_->mutex);
  next_member_ = family_->members;
  family_->members = this;
}

// The workers have ended.
void SpillStore::leave_family() {
  Lock lock(family_->mutex);
  SpillStore** link = &family_->members;
  while (*link != nullptr && *link != this) link = &(*link)->next_member_;
  if (*link == this) *link = next_member_;  // from now on nobody hands anything to this store
  for (uint32_t i = 0; i < plan_.n_entries && entries_ != nullptr && family_->members != nullptr; ++i) {
    hand_over(i);
    lock.unlock();  // let the others go on
    std::this_thread::yield();
    lock.lock();
  }
  guest_left_.wait(lock, [&] { return n_guests_ == 0; });
  lock.unlock();
  if (family_->n_users.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy_in(*family_->memory, family_);
}

// --- reading -------------------------------------------------------------------------------------------------------

const std::byte* SpillStore::raw_bytes(uint32_t index) const {
  const SpillStore& from = holder(index);
  return from.slot(from.entries_[index].first);
}

bool SpillStore::get_from_cells(uint32_t index, std::byte* block) const {
  const SpillStore& from = holder(index);
  return from.cells_.get(from.entries_[index].first, entries_[index].block_bytes, block);
}

void SpillStore::set_raw_index(uint32_t* index) {
  const std::lock_guard lock(family_->mutex);
  raw_index_ = index;
  for (uint32_t i = 0; i < n_raw_; ++i) {
    if (entries_[raw_[i]].owner != nullptr) (void)take_over(raw_[i]);
  }
}

uint32_t SpillStore::n_cells_taken() const {
  const std::lock_guard lock(family_->mutex);
  return plan_.n_cells - cells_.n_free();
}

// --- handing over --------------------------------------------------------------------------------------------------

// Before the bytes of an entry go away or change. Where they are a raw page in this store they are one in those that
// share it, and likewise with cells and file, or the block was lost here and is still there.
void SpillStore::hand_over(uint32_t index) {
  SpillStore* heir = nullptr;
  for (SpillStore* m = family_->members; m != nullptr; m = m->next_member_) {
    Entry& e = m->entries_[index];
    if (e.owner != this) continue;
    if (heir != nullptr) {
      e.owner = heir;
    } else if (m->take_over(index)) {
      heir = m;
    }
  }
}

// Gets the bytes of a shared page. False: they could not be read or written, and the page is lost here.
bool SpillStore::take_over(uint32_t index) {
  Entry& e = entries_[index];
  if (e.where != Where::kRaw) return take_over_block(index);
  std::memcpy(slot(e.first), raw_bytes(index), plan_page_bytes_);
  e.owner = nullptr;
  return true;
}

bool SpillStore::take_over_block(uint32_t index) {
  Entry& e = entries_[index];
  Reader& buffers = readers_[n_readers_ + 1];
  uint32_t first = 0, last = 0;
  if (e.where != Where::kFile) {
    if (!get_from_cells(index, buffers.block) || !put_in_cells(buffers.block, e.block_bytes, first, last)) {
      lose_shared(index);
      return false;
    }
  } else {
    const SpillStore& from = *e.owner;
    uint32_t n_runs = from.file_.runs(from.entries_[index].first, e.block_bytes, buffers.runs);
    if (from.file_.read(buffers.runs, n_runs, buffers.block) != 0) {
      lose_shared(index);
      return false;
    }
    const auto n = static_cast<uint32_t>(SpillFile::cells_for(e.block_bytes));
    file_.take(n, first, last);
    n_runs = file_.runs(first, e.block_bytes, buffers.runs);
    if (file_.write(buffers.runs, n_runs, buffers.block) != 0) {
      give_up_file();
      return false;
    }
    n_reserved_in_file_ -= n;
  }
  e.first = first;
  e.last = last;
  e.owner = nullptr;
  return true;
}

// A block that another store has and that cannot be had from there.
void SpillStore::lose_shared(uint32_t index) {
  Entry& e = entries_[index];
  if (e.where == Where::kFile) {
    give_file_cells_back(e);
  } else {
    if (e.where == Where::kCells) remove(in_cells_, index);
    free_for_sure_ += static_cast<int64_t>(SpillCells::cells_for(e.block_bytes));
    give_cells_back(e);
  }
  ++stats_.errors;
  ++n_losses_;
  lose(e);
}

}  // namespace weir
