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

class ColdPages {
 public:
  // Both outlive this.
  void start(KvCache& kv, SpillStore& store) {
    kv_ = &kv;
    store_ = &store;
    least_ = kv.row_per_stream();
  }
  bool is_on() const { return store_ != nullptr; }
  void reset();  // drops all copies; the tables are reset next

  // Copies the pages that were sealed by the tokens from position `first` on; after a commit.
  void seal(uint32_t first);
  // Brings a cold page back; its stream has a free slot. False: the page is lost.
  bool recall(uint32_t stream, uint32_t row);
  // Reads a page, cold or not, to `out` [page_elements]; false: it is lost.
  bool read(uint32_t stream, uint32_t row, uint16_t* out);
  // KvCache::truncate, with the copies: a last page that is no longer full comes back, into the slot of the page that
  // was wanted the longest ago if need be. False: that page is lost, or no page can leave for it. No token is gone
  // then, and unless its copy proved to be damaged nothing has changed.
  bool truncate(uint32_t n_tokens);

  // Counters, readable from any thread.
  uint64_t pages_recalled() const { return recalled_.load(std::memory_order_relaxed); }
  uint64_t recall_ns() const { return recall_ns_.load(std::memory_order_relaxed); }

 private:
  bool has_stream(uint32_t stream) const { return kv_->window(stream) == 0; }
  bool drop_one();
  void find_least(uint32_t stream);
  bool can_reopen(uint32_t stream, uint32_t row) const;
  bool reopen(uint32_t stream, uint32_t row);
  void forget(uint32_t stream, uint32_t row);

  KvCache* kv_ = nullptr;
  SpillStore* store_ = nullptr;
  static constexpr uint32_t kNoRow = UINT32_MAX;
  uint32_t* least_ = nullptr;  // [n_streams] the row whose copy is dropped first, or kNoRow
  bool least_is_known_ = false;
  std::atomic<uint64_t> recalled_{0}, recall_ns_{0};
};

}  // namespace weir
