// Pages that leave the store as blocks, for a file, and come back from one. While a page is checked, its bytes lie in
// the slot that the next page to put would take; only a put takes slots, and puts take turns.
#include <cstring>

#include "kv/spill_store.h"

namespace weir {

Status SpillStore::get_block(SpillHandle handle, uint32_t stream, uint32_t position, std::byte* block,
                             uint32_t& block_bytes, SpillPlace& place) {
  const std::lock_guard turn(put_mutex_);
  Lock lock(family_->mutex);
  if (!is_page(handle)) return fail(WEIR_ERR_INTERNAL, "the spill store holds no page %u", handle);
  Entry& e = entries_[handle];
  if (e.where <= Where::kBusy) {
    place = SpillPlace::kRaw;
    block_bytes = max_block_bytes(plan_page_bytes_);
    write_block_header(e.checksum ^ salt_, plan_page_bytes_, block);
    std::memcpy(block + kBlockHeaderBytes, raw_bytes(handle), plan_page_bytes_);
    if (checksum_here(block + kBlockHeaderBytes, stream, position) == e.checksum) return {};
    ++stats_.errors;
    return fail(WEIR_ERR_FORMAT, "spilled page of stream %u at position %u: wrong checksum", stream, position);
  }
  place = e.where == Where::kFile ? SpillPlace::kFile : SpillPlace::kCells;
  block_bytes = e.block_bytes;
  std::byte* page = slot(top_slot());
  Reader& reader = take_reader(lock);
  const Status status = read(lock, handle, stream, position, page, reader);
  if (status.ok()) {
    std::memcpy(block, reader.block, block_bytes);
    write_block_header(checksum_of(block) ^ salt_, stored_bytes_of(block), block);
  }
  give_reader(reader);
  return status;
}

Status SpillStore::put_block(uint32_t stream, uint32_t position, const std::byte* block, uint32_t block_bytes,
                             SpillPlace place, void* page, SpillHandle& handle, uint32_t tag) {
  const std::lock_guard turn(put_mutex_);
  Lock lock(family_->mutex);
  const uint32_t free_slot = top_slot();
  Reader& reader = take_reader(lock);
  lock.unlock();
  const bool is_good = reader.decoder.decode_block(block, block_bytes, stream, position, slot(free_slot));
  lock.lock();
  give_reader(reader);
  if (!is_good)
    return fail(WEIR_ERR_FORMAT, "page of stream %u at position %u: the block is damaged", stream, position);
  if (page != nullptr) std::memcpy(page, slot(free_slot), plan_page_bytes_);
  const uint64_t checksum = checksum_here(slot(free_slot), stream, position);
  if (place != SpillPlace::kRaw && stats_.pages_held < max_pages_ &&
      add_to_cells(lock, checksum, tag, block, block_bytes, place == SpillPlace::kFile, handle))
    return {};
  WEIR_TRY(make_room(lock, 1));
  // Workers may have put slots on the stack meanwhile, under which this one lies; its page goes into the top one.
  const uint32_t taken = top_slot();
  --n_free_slots_;
  if (taken != free_slot) std::memcpy(slot(taken), slot(free_slot), plan_page_bytes_);
  handle = add_raw(checksum, position, tag, taken, false);
  if (n_raw_ > plan_.n_raw) retire(lock);
  return {};
}

// By the encoder of the thread that puts.
uint32_t SpillStore::make_block(uint32_t stream, uint32_t position, const void* page, std::byte* block) {
  const std::lock_guard turn(put_mutex_);
  const uint64_t checksum = page_checksum(page, plan_page_bytes_, stream, position);
  const uint32_t stored =
      workers_[n_workers_].encoder.encode(static_cast<const std::byte*>(page), block + kBlockHeaderBytes);
  write_block_header(checksum, stored, block);
  return kBlockHeaderBytes + stored;
}

bool SpillStore::find_place(SpillHandle handle, SpillPlace& place) const {
  const std::lock_guard lock(family_->mutex);
  if (!is_page(handle) || entries_[handle].where == Where::kLost) return false;
  const Where where = entries_[handle].where;
  place = where <= Where::kBusy ? SpillPlace::kRaw : where == Where::kFile ? SpillPlace::kFile : SpillPlace::kCells;
  return true;
}

// False, and nothing has changed, when there is no room. Kept is the block with the checksum that this store has for
// it; it is made where the thread that puts compresses, once nothing is left to compress.
bool SpillStore::add_to_cells(Lock& lock, uint64_t checksum, uint32_t tag, const std::byte* block, uint32_t block_bytes,
                              bool to_file, SpillHandle& handle) {
  const uint64_t n_cells = SpillCells::cells_for(block_bytes);
  uint32_t first = 0, last = 0;
  if (!free_cells(lock, n_cells)) return false;
  std::byte* const kept = workers_[n_workers_].block;
  std::memcpy(kept, block, block_bytes);
  write_block_header(checksum, stored_bytes_of(block), kept);
  if (!put_in_cells(kept, block_bytes, first, last)) return false;
  const uint32_t index = free_entry_;
  Entry& e = entries_[index];
  free_entry_ = e.next;
  e = {.checksum = checksum,
       .owner = nullptr,
       .tag = tag,
       .n_refs = 1,
       .first = first,
       .last = last,
       .block_bytes = block_bytes,
       .prev = kNoSpill,
       .next = kNoSpill,
       .stamp = 0,
       .where = Where::kCells,
       .was_read = false,
       .is_spare = false};
  tell(e, kCopyElsewhere);
  free_for_sure_ -= static_cast<int64_t>(n_cells);
  ++stats_.pages_spilled;
  ++stats_.pages_held;
  stats_.stored_bytes += n_cells * SpillCells::kCellBytes;
  handle = index;
  const bool has_room = file_.is_open() && !file_failed_ && SpillFile::cells_for(block_bytes) <= file_room();
  if (to_file && has_room) {
    (void)write_to_file(lock, index);  // if the file fails the block stays in its cells
  } else {
    append(in_cells_, index);
  }
  return true;
}

}  // namespace weir
