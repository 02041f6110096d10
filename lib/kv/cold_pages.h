// With recall: the copies of a session's pages outside the pool. A page is copied when it is sealed, so leaving the
// pool costs nothing, and what comes back is what left, bit for bit. Only streams that the budget rules have copies.
//
// When the store is full, copies are dropped: of the cold pages the one that was wanted the longest ago, then by stream
// and row, which is then lost for good: it keeps its row, is never attended, and its digest is spoilt so that nothing
// wants it. The copies of pages in the pool, and then of cold pages that are pinned, are dropped only when there are no
// others.
#pragma once

#include <atomic>
#include <cstdint>

#include "kv/kv_cache.h"
#include "kv/spill_store.h"

namespace weir {

// Writes pages of a pool that is not in host memory.
class PoolWriter {
 public:
  virtual std::byte* buffer() = 0;        // for one page
  virtual bool write(uint32_t slot) = 0;  // what is in the buffer; false: the device is lost

 protected:
  ~PoolWriter() = default;
};

class ColdPages {
 public:
  // All outlive this. `writer`: null when the pool is in host memory.
  void start(KvCache& kv, SpillStore& store, PoolWriter* writer = nullptr) {
    kv_ = &kv;
    store_ = &store;
    writer_ = writer;
    least_ = kv.row_per_stream();
  }
  bool is_on() const { return store_ != nullptr; }
  void reset();  // drops all copies; the tables are reset next

  // Copies the pages that were sealed by the tokens from position `first` on; after a commit.
  void seal(uint32_t first);
  // The same of one row of a pool that is not in host memory, from `pages` [n_streams, page_elements].
  void seal_row(uint32_t row, const uint16_t* pages);
  // Brings a cold page back; its stream has a free slot. False: the page is lost.
  bool recall(uint32_t stream, uint32_t row);
  // Reads a page, cold or not, to `out` [page_elements]; false: it is lost. Of a pool that is not in host memory only
  // cold pages can be read.
  bool read(uint32_t stream, uint32_t row, uint16_t* out);
  // Reads the copy of a page that has no table row of its own at the moment, because a device has the tables.
  bool read_copy(uint32_t stream, uint32_t row, void* out) const {
    const uint32_t copy = kv_->stream(stream).copies[row];
    return copy != kNoCopy && store_->get(copy, stream, row * kPageTokens, out).ok();
  }
  // A page whose copy cannot be read is lost, in the pool or not.
  void lose(uint32_t stream, uint32_t row);
  // KvCache::truncate, with the copies: a last page that is no longer full comes back, into the slot of the page that
  // was wanted the longest ago if need be. False: that page is lost, or no page can leave for it. No token is gone
  // then, and unless its copy proved to be damaged nothing has changed.
  bool truncate(uint32_t n_tokens);

  // Counters, readable from any thread.
  // Of pages that a device has brought back itself.
  void set_recalled(uint64_t n) { recalled_.store(n, std::memory_order_relaxed); }
  void add_recall_ns(uint64_t ns) { recall_ns_.fetch_add(ns, std::memory_order_relaxed); }
  uint64_t pages_recalled() const { return recalled_.load(std::memory_order_relaxed); }
  uint64_t recall_ns() const { return recall_ns_.load(std::memory_order_relaxed); }

 private:
  bool has_stream(uint32_t stream) const { return kv_->window(stream) == 0; }
  void copy_row(uint32_t row, const uint16_t* pages);
  bool drop_one();
  void find_least(uint32_t stream);
  bool can_reopen(uint32_t stream, uint32_t row) const;
  bool reopen(uint32_t stream, uint32_t row);
  void forget(uint32_t stream, uint32_t row);

  KvCache* kv_ = nullptr;
  SpillStore* store_ = nullptr;
  PoolWriter* writer_ = nullptr;
  static constexpr uint32_t kNoRow = UINT32_MAX;
  uint32_t* least_ = nullptr;  // [n_streams] the row whose copy is dropped first, or kNoRow
  bool least_is_known_ = false;
  std::atomic<uint64_t> recalled_{0}, recall_ns_{0};
};

}  // namespace weir
