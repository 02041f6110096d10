// The store's pages: putting, moving from tier to tier, reading, references. What it is made of and how it begins and
// ends is in spill_create.cpp, what it shares with copies of it in spill_family.cpp. The family's mutex guards
// everything but the contents of slots, which change only under it and are read without it by the worker that has the
// page; compressing, restoring, reading and writing the file happen outside it.
#include "kv/spill_store.h"

#include <algorithm>
#include <cstring>

#include "core/random.h"

namespace weir {
namespace {

// Blocks that move to the file together, unless that were more than an eighth of the cells: the puts that follow find
// room without waiting for the queue.
constexpr uint64_t kMovedTogether = 32;

}  // namespace

// --- lists ---------------------------------------------------------------------------------------------------------

void SpillStore::append(List& list, uint32_t index) {
  Entry& e = entries_[index];
  e.prev = list.last;
  e.next = kNoSpill;
  (list.last == kNoSpill ? list.first : entries_[list.last].next) = index;
  list.last = index;
  ++list.n;
}

void SpillStore::remove(List& list, uint32_t index) {
  const Entry& e = entries_[index];
  (e.prev == kNoSpill ? list.first : entries_[e.prev].next) = e.next;
  (e.next == kNoSpill ? list.last : entries_[e.next].prev) = e.prev;
  --list.n;
}

// The place where the page lies is free already.
void SpillStore::free_entry(uint32_t index) {
  entries_[index].owner = nullptr;
  entries_[index].where = Where::kFree;
  entries_[index].next = free_entry_;
  free_entry_ = index;
}

// --- putting -------------------------------------------------------------------------------------------------------

Status SpillStore::make_room(uint32_t n_pages) {
  const std::lock_guard turn(put_mutex_);
  Lock lock(family_->mutex);
  return make_room(lock, n_pages);
}

Status SpillStore::make_room(Lock& lock, uint32_t n_pages) {
  if (stats_.pages_held + n_pages > max_pages_) {
    return fail(WEIR_ERR_BUDGET, "the spill store holds %llu pages, at most %u; %u more have no room",
                static_cast<unsigned long long>(stats_.pages_held), max_pages_, n_pages);
  }
  const uint64_t n_raw = uint64_t{n_raw_} + n_pages;
  const uint64_t n_retired = n_raw > plan_.n_raw ? n_raw - plan_.n_raw : 0;
  if (free_cells(lock, n_retired * plan_.worst_cells)) return {};
  return fail(WEIR_ERR_BUDGET, "the spill store is full: %llu pages in %llu bytes, room for %u more was asked for",
              static_cast<unsigned long long>(stats_.pages_held), static_cast<unsigned long long>(stats_.stored_bytes),
              n_pages);
}

// Whether n cells are free for sure, after everything has been tried.
bool SpillStore::free_cells(Lock& lock, uint64_t n) {
  const auto wanted = static_cast<int64_t>(n);
  while (free_for_sure_ < wanted && queue_.n > 0) {
    if (n_workers_ != 0 && entries_[queue_.first].where < Where::kDone) ++stats_.waits;
    take_from_queue(lock);
  }
  return free_for_sure_ >= wanted || move_to_file(lock, wanted);
}

// Takes the oldest page out of the queue when it is compressed. Until then it compresses pages that no worker has
// taken, and waits only for those that one has. Others may end references meanwhile, so the queue may be empty
// afterwards.
void SpillStore::take_from_queue(Lock& lock) {
  while (queue_.n > 0 && entries_[queue_.first].where < Where::kDone) {
    if (next_job_ != kNoSpill) {
      do_job(lock, workers_[n_workers_]);
    } else {
      done_.wait(lock);
    }
  }
  if (queue_.n == 0) return;
  const uint32_t index = queue_.first;
  Entry& e = entries_[index];
  remove(queue_, index);
  free_for_sure_ += plan_.worst_cells - static_cast<int64_t>(SpillCells::cells_for(e.block_bytes));
  if (e.block_bytes == 0) {
    lose(e);
    return;
  }
  e.where = Where::kCells;
  append(in_cells_, index);
}

// Puts the raw page that leaves next into the queue if there are too many. The cells for it are free.
void SpillStore::retire(Lock& lock) {
  while (queue_.n >= plan_.queue_pages) {
    if (entries_[queue_.first].where < Where::kDone) ++stats_.waits;
    take_from_queue(lock);
  }
  if (n_raw_ <= plan_.n_raw) return;  // others have ended references meanwhile
  const uint32_t index = next_to_leave();
  Entry& e = entries_[index];
  if (e.owner != nullptr) (void)take_over(index);
  hand_over(index);  // shared are pages and blocks at rest
  remove_raw(index);
  tell(e, kCopyElsewhere);
  append(queue_, index);
  free_for_sure_ -= plan_.worst_cells;
  e.where = Where::kQueued;
  if (next_job_ == kNoSpill) next_job_ = index;
  if (n_workers_ == 0) {
    take_from_queue(lock);
  } else {
    job_.notify_one();
  }
}

Status SpillStore::put(uint32_t stream, uint32_t position, const void* page, SpillHandle& handle, uint32_t tag,
                       bool is_spare) {
  const uint64_t checksum = checksum_here(page, stream, position);
  const std::lock_guard turn(put_mutex_);
  Lock lock(family_->mutex);
  WEIR_TRY(make_room(lock, 1));
  const uint32_t free_slot = top_slot();
  --n_free_slots_;
  std::memcpy(slot(free_slot), page, plan_page_bytes_);
  handle = add_raw(checksum, position, tag, free_slot, is_spare);
  if (n_raw_ > plan_.n_raw) retire(lock);
  return {};
}

// Takes an entry for a page that is in a slot.
SpillHandle SpillStore::add_raw(uint64_t checksum, uint32_t position, uint32_t tag, uint32_t slot, bool is_spare) {
  const uint32_t index = free_entry_;
  Entry& e = entries_[index];
  free_entry_ = e.next;
  e = {.checksum = checksum,
       .owner = nullptr,
       .tag = tag,
       .n_refs = 1,
       .first = slot,
       .last = 0,
       .block_bytes = 0,
       .prev = kNoSpill,
       .next = kNoSpill,
       .stamp = 0,
       .where = Where::kRaw,
       .was_read = false,
       .is_spare = is_spare};
  add_to_raw(index, position);
  tell(e, e.first);
  ++stats_.pages_spilled;
  ++stats_.pages_held;
  stats_.stored_bytes += plan_page_bytes_;
  return index;
}

// --- workers -------------------------------------------------------------------------------------------------------

// Returns the size of the block in the worker's buffer.
uint32_t SpillStore::compress(Worker& worker, uint32_t index) {
  const Entry& e = entries_[index];
  const uint32_t stored = worker.encoder.encode(slot(e.first), worker.block + kBlockHeaderBytes);
  write_block_header(e.checksum, stored, worker.block);
  return kBlockHeaderBytes + stored;
}

// There are enough free cells; but where a link between them is damaged, only those that were never used remain.
bool SpillStore::put_in_cells(const std::byte* block, uint32_t block_bytes, uint32_t& first, uint32_t& last) {
  const uint32_t n_lost = cells_.n_lost();
  const bool kept = cells_.put(block, block_bytes, first, last) || cells_.put(block, block_bytes, first, last);
  free_for_sure_ -= cells_.n_lost() - n_lost;
  return kept;
}

// A busy page's block goes into cells, and its slot becomes free.
void SpillStore::keep_block(uint32_t index, const std::byte* block, uint32_t block_bytes) {
  Entry& e = entries_[index];
  free_slots_[n_free_slots_++] = e.first;
  if (e.where == Where::kGone) {
    free_entry(index);
    return;
  }
  stats_.stored_bytes -= plan_page_bytes_;
  e.where = Where::kDone;
  const bool kept = put_in_cells(block, block_bytes, e.first, e.last);
  if (!kept) {
    ++stats_.errors;
    return;
  }
  e.block_bytes = block_bytes;
  stats_.stored_bytes += SpillCells::cells_for(block_bytes) * SpillCells::kCellBytes;
}

void* SpillStore::worker_main(void* argument) {
  auto& self = *static_cast<Worker*>(argument);
  SpillStore& s = *self.store;
  Lock lock(s.family_->mutex);
  for (;;) {
    s.job_.wait(lock, [&] { return s.stop_ || s.next_job_ != kNoSpill; });
    if (s.stop_) return nullptr;
    s.do_job(lock, self);
    s.done_.notify_all();
  }
}

// Takes the first page that nobody has taken and compresses it, without the lock.
void SpillStore::do_job(Lock& lock, Worker& worker) {
  const uint32_t index = next_job_;
  next_job_ = entries_[index].next;
  entries_[index].where = Where::kBusy;
  lock.unlock();
  const uint32_t block_bytes = compress(worker, index);
  lock.lock();
  keep_block(index, worker.block, block_bytes);
}

void SpillStore::drain() {
  const std::lock_guard turn(put_mutex_);
  Lock lock(family_->mutex);
  while (queue_.n > 0) take_from_queue(lock);
}

// --- file ----------------------------------------------------------------------------------------------------------

// The queue is empty. Moves blocks to the file until `wanted` cells are free, and some more.
bool SpillStore::move_to_file(Lock& lock, uint64_t wanted) {
  const auto more = static_cast<int64_t>(std::min<uint64_t>(kMovedTogether * plan_.worst_cells, plan_.n_cells / 8));
  const auto enough = static_cast<int64_t>(wanted);
  // Two rounds: after the first, nothing counts as read.
  for (uint64_t left = uint64_t{2} * in_cells_.n; left > 0 && in_cells_.n > 0 && free_for_sure_ < enough + more;
       --left) {
    if (!file_.is_open() || file_failed_) break;
    const uint32_t index = in_cells_.first;
    Entry& e = entries_[index];
    if (!e.was_read && SpillFile::cells_for(e.block_bytes) > file_room()) break;
    remove(in_cells_, index);
    if (e.was_read) {
      e.was_read = false;
      append(in_cells_, index);
    } else if (!write_to_file(lock, index)) {
      break;
    }
  }
  return free_for_sure_ >= enough;
}

// A block in cells that is in no list. The lock is not held while it is written: others may read the block meanwhile,
// in its cells, and end the last reference to it. False when the file failed; the block stays in its cells then.
bool SpillStore::write_to_file(Lock& lock, uint32_t index) {
  Entry& e = entries_[index];
  Reader& buffers = readers_[n_readers_];
  if (!get_from_cells(index, buffers.block)) {
    const uint64_t n_cells = SpillCells::cells_for(e.block_bytes);
    ++stats_.errors;
    stats_.stored_bytes -= n_cells * SpillCells::kCellBytes;
    if (e.owner != nullptr) free_for_sure_ += static_cast<int64_t>(n_cells);  // only cells of the owner are damaged
    lose(e);
    return true;
  }
  const auto n = static_cast<uint32_t>(SpillFile::cells_for(e.block_bytes));
  uint32_t first = 0, last = 0;
  file_.take(n, first, last);
  const uint32_t n_runs = file_.runs(first, e.block_bytes, buffers.runs);
  e.where = Where::kMoving;
  lock.unlock();
  const int error = file_.write(buffers.runs, n_runs, buffers.block);
  lock.lock();
  if (error != 0) give_up_file();
  if (e.where != Where::kMoving) {  // another store had the block, and it was lost there
    file_.give_back(n, first, last);
    if (e.where == Where::kLost && e.n_refs == 0) free_entry(index);
    return !file_failed_;
  }
  e.where = Where::kCells;
  if (e.n_refs == 0 || file_failed_) {
    file_.give_back(n, first, last);
    if (e.n_refs == 0) {
      free_for_sure_ += static_cast<int64_t>(SpillCells::cells_for(e.block_bytes));
      free_place(index);
    } else {
      append(in_cells_, index);
    }
    return !file_failed_;
  }
  stats_.stored_bytes += uint64_t{n} * SpillFile::kCellBytes;
  free_for_sure_ += static_cast<int64_t>(SpillCells::cells_for(e.block_bytes));
  hand_over(index);
  give_cells_back(e);
  ++stats_.pages_in_file;
  e.first = first;
  e.last = last;
  e.where = Where::kFile;
  return true;
}

// Returns the cells of a block that counts as free already, and that no other store has from this one.
void SpillStore::give_cells_back(Entry& e) {
  const auto n = static_cast<uint32_t>(SpillCells::cells_for(e.block_bytes));
  stats_.stored_bytes -= uint64_t{n} * SpillCells::kCellBytes;
  if (e.owner == nullptr && n != 0 && !cells_.give_back(n, e.first, e.last)) free_for_sure_ -= n;
  e.owner = nullptr;
}

void SpillStore::give_file_cells_back(Entry& e) {
  const auto n = static_cast<uint32_t>(SpillFile::cells_for(e.block_bytes));
  stats_.stored_bytes -= uint64_t{n} * SpillFile::kCellBytes;
  --stats_.pages_in_file;
  if (e.owner == nullptr) {
    file_.give_back(n, e.first, e.last);
  } else {
    n_reserved_in_file_ -= n;
  }
  e.owner = nullptr;
}

// Its pages are lost; those that cannot be read any more keep their handles. From now on nothing is written to the
// file, so what other stores have there can be read as before, by the entries of this one.
void SpillStore::give_up_file() {
  if (file_failed_) return;
  file_failed_ = true;
  ++n_losses_;
  ++stats_.errors;
  for (uint32_t i = 0; i < plan_.n_entries; ++i) {
    Entry& e = entries_[i];
    if (e.where != Where::kFile) continue;
    stats_.stored_bytes -= SpillFile::cells_for(e.block_bytes) * SpillFile::kCellBytes;
    lose(e);
  }
  stats_.pages_in_file = 0;
  n_reserved_in_file_ = 0;
}

void SpillStore::lose(Entry& e) {
  e.owner = nullptr;
  e.where = Where::kLost;
  ++stats_.pages_dropped;
}

// --- reading -------------------------------------------------------------------------------------------------------

Status SpillStore::get(SpillHandle handle, uint32_t stream, uint32_t position, void* out) {
  auto* page = static_cast<std::byte*>(out);
  Lock lock(family_->mutex);
  if (!is_page(handle)) return fail(WEIR_ERR_INTERNAL, "the spill store holds no page %u", handle);
  const Where where = entries_[handle].where;
  // True of pages in the queue, too: whether a worker has been there must make no difference.
  entries_[handle].was_read = where != Where::kRaw;
  if (where <= Where::kBusy) {
    const uint64_t checksum = entries_[handle].checksum;
    std::memcpy(page, raw_bytes(handle), plan_page_bytes_);
    lock.unlock();
    if (checksum_here(page, stream, position) == checksum) return {};
    lock.lock();
    ++stats_.errors;
    return fail(WEIR_ERR_FORMAT, "spilled page of stream %u at position %u: wrong checksum", stream, position);
  }
  Reader& reader = take_reader(lock);
  const Status status = read(lock, handle, stream, position, page, reader);
  if (status.ok()) ++stats_.restored;
  give_reader(reader);
  return status;
}

SpillStore::Reader& SpillStore::take_reader(Lock& lock) {
  reader_free_.wait(lock, [&] { return free_reader_ != nullptr; });
  Reader& reader = *free_reader_;
  free_reader_ = reader.next;
  return reader;
}

// The lock is held.
void SpillStore::give_reader(Reader& reader) {
  reader.next = free_reader_;
  free_reader_ = &reader;
  reader_free_.notify_one();
}

// Reads a compressed page to `out`. The lock is held before and after.
Status SpillStore::read(Lock& lock, SpillHandle handle, uint32_t stream, uint32_t position, std::byte* out,
                        Reader& reader) {
  const Entry& e = entries_[handle];
  const uint32_t block_bytes = e.block_bytes;
  bool is_good = true;
  if (e.where != Where::kFile && e.where != Where::kLost) {
    is_good = get_from_cells(handle, reader.block);
  } else {
    WEIR_TRY(read_file(lock, handle, stream, position, reader));
  }
  lock.unlock();
  is_good = is_good && reader.decoder.decode_block(reader.block, block_bytes, stream, position, out, salt_);
  lock.lock();
  if (is_good) return {};
  ++stats_.errors;
  return fail(WEIR_ERR_FORMAT, "spilled page of stream %u at position %u: the block is damaged", stream, position);
}

// A block in a file to the reader's buffer, without the lock meanwhile. The store whose file it is does not end before
// that; but it may hand the block over and use its place for another one, so whether it still had it is looked at
// afterwards.
Status SpillStore::read_file(Lock& lock, SpillHandle handle, uint32_t stream, uint32_t position, Reader& reader) {
  const Entry& e = entries_[handle];
  while (e.where == Where::kFile) {
    SpillStore* const owner = e.owner;
    SpillStore& from = owner != nullptr ? *owner : *this;
    const uint32_t n_runs = from.file_.runs(from.entries_[handle].first, e.block_bytes, reader.runs);
    ++from.n_guests_;
    lock.unlock();
    const int error = from.file_.read(reader.runs, n_runs, reader.block);
    lock.lock();
    if (--from.n_guests_ == 0) from.guest_left_.notify_all();
    if (e.owner != owner) continue;
    if (error == 0) return {};
    if (owner != nullptr) {
      lose_shared(handle);
    } else {
      give_up_file();
    }
    return fail(WEIR_ERR_IO, "the spill file cannot be read: error %d", error);
  }
  return fail(WEIR_ERR_NOT_FOUND, "spilled page of stream %u at position %u was lost with the spill file", stream,
              position);
}

const std::byte* SpillStore::raw_page(SpillHandle handle) {
  const std::lock_guard lock(family_->mutex);
  if (!is_page(handle) || entries_[handle].where != Where::kRaw) return nullptr;
  if (entries_[handle].owner != nullptr) (void)take_over(handle);
  return slot(entries_[handle].first);
}

bool SpillStore::is_lost(SpillHandle handle) const {
  const std::lock_guard lock(family_->mutex);
  return is_page(handle) && entries_[handle].where == Where::kLost;
}

bool SpillStore::file_given_up() const {
  const std::lock_guard lock(family_->mutex);
  return file_failed_;
}

uint32_t SpillStore::n_losses() const {
  const std::lock_guard lock(family_->mutex);
  return n_losses_;
}

SpillStats SpillStore::stats() const {
  const std::lock_guard lock(family_->mutex);
  SpillStats stats = stats_;
  stats.pages_raw = n_raw_;
  return stats;
}

// --- references ----------------------------------------------------------------------------------------------------

void SpillStore::share(SpillHandle handle) {
  const std::lock_guard lock(family_->mutex);
  if (is_page(handle)) ++entries_[handle].n_refs;
}

void SpillStore::release(SpillHandle handle) { end_reference(handle, false); }
void SpillStore::drop(SpillHandle handle) { end_reference(handle, true); }

void SpillStore::end_reference(SpillHandle handle, bool is_drop) {
  const std::lock_guard lock(family_->mutex);
  if (!is_page(handle)) return;
  Entry& e = entries_[handle];
  if (is_drop && e.where != Where::kLost) ++stats_.pages_dropped;  // what is lost has been counted
  if (--e.n_refs == 0) end_page(handle);
}

// Ends a page that has no references left. The lock is held.
void SpillStore::end_page(uint32_t handle) {
  Entry& e = entries_[handle];
  --stats_.pages_held;
  tell(e, kNoCopy);
  if (e.where == Where::kMoving) return;  // who moves it frees it
  if (e.where == Where::kRaw) remove_raw(handle);
  if (e.where == Where::kCells) {
    remove(in_cells_, handle);
    free_for_sure_ += static_cast<int64_t>(SpillCells::cells_for(e.block_bytes));
  }
  if (e.where == Where::kQueued || e.where == Where::kBusy || e.where == Where::kDone) {
    if (next_job_ == handle) next_job_ = e.next;
    remove(queue_, handle);
    free_for_sure_ += plan_.worst_cells;
    done_.notify_all();
  }
  free_place(handle);
}

void SpillStore::clear() {
  const std::lock_guard turn(put_mutex_);  // nothing moves to the file meanwhile
  Lock lock(family_->mutex);
  for (uint32_t i = 0; i < plan_.n_entries; ++i) {
    if (!is_page(i)) continue;
    entries_[i].n_refs = 0;
    end_page(i);
  }
  done_.wait(lock, [&] { return n_free_slots_ == plan_.n_slots; });  // workers have the rest
  lock.unlock();                                                     // the memory is nobody's now, and takes a while
  wipe();
  lock.lock();
  init_lists();
  salt_ = random_number();
}

// The memory that pages were in. What others share has been handed over.
void SpillStore::wipe() {
  weir::wipe(slots_, size_t{n_slots_used_} * plan_page_bytes_);
  cells_.wipe();
  for (uint32_t i = 0; i <= n_workers_; ++i) weir::wipe(workers_[i].block, max_block_bytes(plan_page_bytes_));
  for (uint32_t i = 0; i < n_readers_ + 2; ++i) weir::wipe(readers_[i].block, max_block_bytes(plan_page_bytes_));
  n_slots_used_ = 0;
}

// Frees the place of a page that is in no list any more.
void SpillStore::free_place(uint32_t index) {
  Entry& e = entries_[index];
  hand_over(index);
  switch (e.where) {
    case Where::kRaw:
    case Where::kQueued:
      stats_.stored_bytes -= plan_page_bytes_;
      free_slots_[n_free_slots_++] = e.first;
      break;
    case Where::kBusy:
      stats_.stored_bytes -= plan_page_bytes_;
      e.where = Where::kGone;  // the worker frees slot and entry
      return;
    case Where::kDone:
    case Where::kCells:
      give_cells_back(e);
      break;
    case Where::kFile:
      give_file_cells_back(e);
      break;
    case Where::kFree:
    case Where::kGone:
    case Where::kMoving:
    case Where::kLost:
      break;
  }
  free_entry(index);
}

}  // namespace weir
