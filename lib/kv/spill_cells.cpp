// Chains of cells in host memory.
#include "kv/spill_cells.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"

namespace weir {

uint32_t SpillCells::link(uint32_t cell) const {
  uint32_t to = 0;
  std::memcpy(&to, memory_ + size_t{cell} * kCellBytes, kLinkBytes);
  return to;
}

void SpillCells::set_link(uint32_t cell, uint32_t to) {
  std::memcpy(memory_ + size_t{cell} * kCellBytes, &to, kLinkBytes);
}

void SpillCells::init(std::byte* memory, uint32_t n_cells) {
  memory_ = memory;
  n_cells_ = n_free_ = n_cells;
  first_free_ = n_linked_ = n_lost_ = 0;
}

bool SpillCells::put(const std::byte* block, uint32_t bytes, uint32_t& first, uint32_t& last) {
  const auto n = static_cast<uint32_t>(cells_for(bytes));
  if (n > n_free_) return false;
  uint32_t cell = first_free_, end = 0, n_linked = n_linked_;
  for (uint32_t i = 0; i < n; ++i) {
    if (cell >= n_cells_) {
      n_lost_ += n_free_ - (n_cells_ - n_linked_);
      n_free_ = n_cells_ - n_linked_;
      first_free_ = n_linked_;
      return false;
    }
    const uint32_t done = i * kPayload;
    std::memcpy(memory_ + size_t{cell} * kCellBytes + kLinkBytes, block + done, std::min(bytes - done, kPayload));
    end = cell;
    if (cell == n_linked) set_link(cell, ++n_linked);  // its first use
    cell = link(cell);
  }
  n_linked_ = n_linked;
  first = first_free_;
  last = end;
  first_free_ = cell;
  n_free_ -= n;
  return true;
}

bool SpillCells::get(uint32_t first, uint32_t bytes, std::byte* out) const {
  uint32_t cell = first;
  for (uint32_t done = 0; done < bytes; done += kPayload) {
    if (cell >= n_cells_) return false;
    std::memcpy(out + done, memory_ + size_t{cell} * kCellBytes + kLinkBytes, std::min(bytes - done, kPayload));
    cell = link(cell);
  }
  return true;
}

bool SpillCells::give_back(uint32_t n, uint32_t first, uint32_t last) {
  uint32_t cell = first;
  for (uint32_t i = 1; i < n && cell < n_cells_; ++i) cell = link(cell);
  if (cell != last) {
    n_lost_ += n;
    return false;
  }
  set_link(last, first_free_);
  first_free_ = first;
  n_free_ += n;
  return true;
}

void SpillCells::wipe() { weir::wipe(memory_, size_t{n_linked_} * kCellBytes); }

}  // namespace weir
