// Host memory for blocks of any size: equal cells of 256 bytes, of which the first four link to the next of a chain.
// Blocks fit wherever cells are free, so nothing fragments, and how many fit follows from their sizes alone. A chain is
// freed as a whole. One thread at a time.
//
// Links are checked wherever they are followed: damaged memory makes a block unreadable or a put fail, and no access
// leaves the cells. Cells that a damaged link leads away from are not used again; n_lost() counts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weir {

class SpillCells {
 public:
  static constexpr uint32_t kCellBytes = 256, kLinkBytes = 4, kPayload = kCellBytes - kLinkBytes;
  static constexpr uint64_t cells_for(uint64_t bytes) { return (bytes + kPayload - 1) / kPayload; }

  // `memory` has n_cells * kCellBytes bytes and stays with this object.
  void init(std::byte* memory, uint32_t n_cells);
  uint32_t n_cells() const { return n_cells_; }
  uint32_t n_free() const { return n_free_; }
  uint32_t n_lost() const { return n_lost_; }

  // Copies a block into free cells. False when there are too few. Also false when a link between them is damaged: then
  // free are only the cells that were never used, and a second try may find enough of these.
  bool put(const std::byte* block, uint32_t bytes, uint32_t& first, uint32_t& last);
  // Copies the block that begins in cell `first` to `out`. False when a link is damaged.
  bool get(uint32_t first, uint32_t bytes, std::byte* out) const;
  // False when a link of the chain is damaged: its cells are lost.
  bool give_back(uint32_t n, uint32_t first, uint32_t last);

  void wipe();  // all that has been in any cell; init() follows

  std::span<std::byte> memory() { return {memory_, size_t{n_cells_} * kCellBytes}; }  // for tests

 private:
  uint32_t link(uint32_t cell) const;
  void set_link(uint32_t cell, uint32_t to);

  std::byte* memory_ = nullptr;
  uint32_t n_cells_ = 0, n_free_ = 0, first_free_ = 0, n_lost_ = 0;
  // Cells from this one on were never used: they are free, in order, behind all others, and nothing has touched their
  // memory.
  uint32_t n_linked_ = 0;
};

}  // namespace weir
