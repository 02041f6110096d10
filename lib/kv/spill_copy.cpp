// A second store with the pages of another one. Entries keep their numbers, raw pages their slots and blocks their
// cells, in memory and in the file, so that nothing which later calls depend on differs.
#include <cstring>

#include "kv/spill_store.h"

namespace weir {

Status SpillStore::create_copy(SpillStore& other) {
  WEIR_TRY(create(other.options_));
  return copy_pages(other);
}

Status SpillStore::copy_pages(SpillStore& other) {
  const std::lock_guard turn(other.put_mutex_);
  Lock theirs(other.mutex_);
  while (other.queue_.n > 0) other.take_from_queue(theirs);
  // Whatever has left the queue while it was being compressed still has a slot.
  const auto is_quiet = [&] {
    for (uint32_t i = 0; i < other.plan_.n_entries; ++i) {
      if (other.entries_[i].where == Where::kGone) return false;
    }
    return true;
  };
  other.done_.wait(theirs, is_quiet);

  const Lock lock(mutex_);
  std::memcpy(entries_, other.entries_, size_t{plan_.n_entries} * sizeof(*entries_));
  std::memcpy(free_slots_, other.free_slots_, size_t{other.n_free_slots_} * sizeof(*free_slots_));
  n_free_slots_ = other.n_free_slots_;
  free_entry_ = other.free_entry_;
  free_for_sure_ = other.free_for_sure_;
  raw_ = other.raw_;
  in_cells_ = other.in_cells_;
  stats_ = other.stats_;
  for (uint32_t i = raw_.first; i != kNoSpill; i = entries_[i].next)
    std::memcpy(slot(entries_[i].first), other.slot(entries_[i].first), plan_page_bytes_);
  cells_.copy_from(other.cells_);
  file_failed_ = other.file_failed_;
  return stats_.pages_in_file == 0 && !file_.is_open() ? Status() : copy_file(other);
}

Status SpillStore::copy_file(SpillStore& other) {
  file_.copy_chains(other.file_, plan_.n_file_cells);
  const Reader& buffers = readers_[n_readers_];
  for (uint32_t i = 0; i < plan_.n_entries; ++i) {
    const Entry& e = entries_[i];
    if (e.where != Where::kFile) continue;
    const uint32_t n_runs = file_.runs(e.first, e.block_bytes, buffers.runs);
    int error = other.file_.read(buffers.runs, n_runs, buffers.block);
    if (error != 0) return fail(WEIR_ERR_IO, "the spill file cannot be read: error %d", error);
    error = file_.write(buffers.runs, n_runs, buffers.block);
    if (error != 0) return fail(WEIR_ERR_IO, "the copy of the spill file cannot be written: error %d", error);
  }
  return {};
}

}  // namespace weir
