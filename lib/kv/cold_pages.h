// With recall: the copies of a session's pages outside the pool. A page is copied when it is sealed, so leaving the
// pool costs nothing, and what comes back is what left, bit for bit. These are pages of streams that the budget
// rules; window_copies.h has the others.
//
// When the store is full, copies are dropped: of the cold pages the one that was wanted the longest ago, then by stream
// and row, which is then lost for good: it keeps its row, is never attended, and its digest is spoilt so that nothing
// wants it. The copies of pages in the pool, and then of cold pages that are pinned, are dropped only when there are no
// others. A page in the pool without a copy gets one again as soon as there is room.
//
// While the store has raw slots for all copies, they are as they were. Then the one is compressed that was wanted the
// longest ago, then by stream and row; and when pages are sealed, compressed ones that steps wanted since the pages
// before were sealed become raw again, over those that were wanted longer ago. The stamps alone decide both.
//
// With a strict store nothing is dropped: before tokens are appended there must be room for the copies of the pages
// that they fill, and while a page of the conversation is lost, with the file or by damage, no token can be appended.
#pragma once

#include <atomic>
#include <cstdint>

#include "kv/kv_cache.h"
#include "kv/spill_store.h"
#include "kv/window_copies.h"

namespace weir {

class ColdPages {
 public:
  // All outlive this. `pool`: null when the pool is in host memory.
  void start(KvCache& kv, SpillStore& store, bool strict = false, PoolAccess* pool = nullptr) {
    kv_ = &kv;
    store_ = &store;
    strict_ = strict;
    pool_ = pool;
    min_ = kv.row_per_stream();
    windows_.start(kv, store, pool);
    store.set_stamps(kv.tables().stamp);
  }
  bool is_on() const { return store_ != nullptr; }
  bool is_strict() const { return strict_; }
  // Goes on as another one, whose tables and store were copied.
  void copy_from(const ColdPages& other);
  void reset();  // forgets all copies, and empties the store; the tables are reset next

  // Strict: before n_tok tokens are appended. WEIR_ERR_BUDGET: the copies of the pages that they fill have no room;
  // WEIR_ERR_IO: the file failed while room was made; or failure(). No token is gone then.
  Status prepare(uint32_t n_tok);
  // Strict: whether a page of the conversation is lost. WEIR_ERR_IO: with the file; WEIR_ERR_FORMAT: it was damaged.
  Status failure() const;

  // Copies the pages that were sealed by the tokens from position `first` on; after a commit.
  void seal(uint32_t first);
  // The same of one page of all streams, of a pool that is not in host memory, from `pages` [n_streams, page_elements].
  void seal_row(uint32_t row, const uint16_t* pages);
  // After pages were sealed, with current tables: what was wanted lately becomes raw again. Returns whether a page
  // proved to be lost.
  bool make_raw_again();
  // Whether sealing n_rows pages of every stream, and make_raw_again() then, look at the stamps.
  bool needs_stamps(uint32_t n_rows) const {
    return store_->has_compressed() || store_->needs_stamps(n_rows * kv_->shape().n_streams());
  }
  // Brings a cold page back; its stream has a free slot. False: the page is lost.
  bool recall(uint32_t stream, uint32_t row);
  // The same in three parts: KvCache::take_back(), read_copy() to the slot's memory on any thread, and this with what
  // it gave and the time that it took.
  void took_back(uint32_t stream, uint32_t row, weir_status status, uint64_t ns);
  // Reads a page, cold or not, to `out` [page_elements]; false: it is lost. If the pool is not in host memory, only
  // cold pages can be read.
  bool read(uint32_t stream, uint32_t row, uint16_t* out);
  // Reads the copy of a page, whatever the tables say about the page; a device may have them.
  Status read_copy(uint32_t stream, uint32_t row, void* out) const {
    return store_->get(kv_->stream(stream).copies[row], stream, row * kPageTokens, out);
  }
  // Gives up a page whose copy could not be read: it is lost, and with the file perhaps others are.
  void cannot_read(uint32_t stream, uint32_t row, Status status);
  // Whether the next seal_row() looks at the tables.
  bool needs_tables() const { return lacks_copies_ || store_->n_losses() != n_losses_; }
  // The copy of a page as SpillStore::get_block gives it; false: it is damaged, and the page has none any more.
  bool get_block(uint32_t stream, uint32_t row, std::byte* block, uint32_t& block_bytes, SpillPlace& place);
  // Gives a page of a restored conversation its copy, and if it is in the pool its bytes. When the store is full, the
  // copy that is dropped first has to go, perhaps this one. WEIR_ERR_FORMAT: the block is damaged, or another page's;
  // strict: WEIR_ERR_BUDGET instead of a loss; WEIR_ERR_DEVICE_LOST.
  Status put_block(uint32_t stream, uint32_t row, const std::byte* block, uint32_t block_bytes, SpillPlace place);
  // Restores a page that has no copy: it is in the pool, or lost; in a strict store no token is appended then.
  void restore_without(uint32_t stream, uint32_t row);
  void begin_restore() { min_is_known_ = false; }

  // KvCache::truncate, with the copies: a last page that is no longer full comes back, into a slot of the pages that
  // are gone. False: that page is lost, or there is no such slot, or a copy that a window needs is damaged. Nothing has
  // changed then, but that a copy which proved to be damaged is lost. One exception: a copy that can be read when this
  // begins and not when it is needed (the store's file fails in between) costs the tokens of its page, if that is the
  // one that is cut, so that fewer than n_tokens are left; else it is missing in its window, with those before it.
  // Other pages that the windows need and that are nowhere are the caller's business.
  bool truncate(uint32_t n_tokens);

  // When the store has lost pages with its file, or as another store lost its: they have no copies any more.
  void look_at_losses();

  // The copies of streams that have a window of their own.
  const WindowCopies& windows() const { return windows_; }

  // Counters, readable from any thread.
  // The first counts pages that a device has brought back itself.
  void set_recalled(uint64_t n) { recalled_.store(n, std::memory_order_relaxed); }
  void add_recall_ns(uint64_t ns) { recall_ns_.fetch_add(ns, std::memory_order_relaxed); }
  uint64_t pages_recalled() const { return recalled_.load(std::memory_order_relaxed); }
  uint64_t recall_ns() const { return recall_ns_.load(std::memory_order_relaxed); }

 private:
  bool has_stream(uint32_t stream) const { return kv_->window(stream) == 0; }
  void copy_row(uint32_t row, const uint16_t* pages);
  const void* pool_page(uint32_t slot);
  Status put_block(uint32_t stream, uint32_t row, const std::byte* block, uint32_t block_bytes, SpillPlace place,
                   void* page);
  SpillHandle copy(uint32_t stream, uint32_t row, const void* page);
  bool copy_again();
  void lose(uint32_t stream, uint32_t row, weir_status why);
  void cannot_read_copy(uint32_t stream, uint32_t row, Status status);
  bool drop_one();
  bool find_next_to_drop(uint32_t& stream);
  void find_least(uint32_t stream);
  bool is_cold(uint32_t stream, uint32_t row) const;
  bool can_reopen(uint32_t stream, uint32_t row);
  bool pool_can_hold(uint32_t row) const;
  void drop_rows(uint32_t n_tokens);
  void drop(uint32_t stream, uint32_t row);
  void forget(uint32_t stream, uint32_t row);

  WindowCopies windows_;
  KvCache* kv_ = nullptr;
  SpillStore* store_ = nullptr;
  PoolAccess* pool_ = nullptr;
  uint32_t* min_ = nullptr;  // [n_streams] the row whose copy is dropped first, or kNoRow
  bool min_is_known_ = false;
  bool strict_ = false;
  bool lacks_copies_ = false;  // pages in the pool may have none
  uint32_t n_losses_ = 0;      // of the store, that the tables know of
  // Strict: why a page was lost, and the first position of the first such page.
  weir_status failure_ = WEIR_OK;
  const char* lost_how_ = "";
  uint32_t lost_pos_ = 0;
  std::atomic<uint64_t> recalled_{0}, recall_ns_{0};
};

}  // namespace weir
