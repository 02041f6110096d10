// Where the copies of a session's pages are, outside the pool. A page is copied to the store when it is sealed, so
// leaving the pool costs nothing, and what comes back is what left, bit for bit. A session without a store has copies
// of nothing: everything here does nothing then.
//
// The tables of KvCache have the handles. With recall, streams that the budget rules have them in their rows, which
// never leave: a page whose row has no slot is cold, and one that has no copy either is lost. Other streams have rings
// by position (copy_rings.h). With recall these are layers with a window of their own: only a rewind needs their pages
// again, nobody counts them, and they are the first that a full store drops. Without recall they are the streams that
// let pages go. Steps and prompts never read those copies, so they do what they would do without a store; what left
// comes back when the conversation goes back.
//
// When the store is full, copies in rings are dropped by position, the oldest first, then by stream. After these go
// those of rows: of the cold pages the one that was wanted the longest ago, then by stream and row, which is then lost
// for good: it keeps its row, is never attended, and its digest is spoilt so that nothing wants it. The copies of pages
// in the pool, and then of cold pages that are pinned, are dropped only when there are no others. A page in the pool
// whose row has no copy gets one again as soon as there is room.
//
// While the store has raw slots for all copies, they are as they were. Then the one is compressed that was wanted the
// longest ago, then by stream and row; and when pages are sealed, compressed ones that steps wanted since the pages
// before were sealed become raw again, over those that were wanted longer ago. The stamps alone decide both.
//
// With a strict store nothing that a row has is dropped: before tokens are appended there must be room for the copies
// of the pages that they fill, and while a page of the conversation is lost, with the file or by damage, no token can
// be appended. Strict stores have recall.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "kv/kv_cache.h"

namespace weir {

class SpillStore;
enum class SpillPlace : uint8_t;

// Pages of a pool that is not in host memory, one at a time.
class PoolAccess {
 public:
  virtual std::byte* buffer() = 0;        // for one page
  virtual bool write(uint32_t slot) = 0;  // from the buffer; false: the device is lost
  virtual bool read(uint32_t slot) = 0;   // into the buffer

 protected:
  ~PoolAccess() = default;
};

class PageCopies {
 public:
  // All outlive this, and the cache has been reset. `store`: null when there is none. `pool`: null when the pool is in
  // host memory.
  void start(KvCache& kv, SpillStore* store, bool strict = false, PoolAccess* pool = nullptr);
  void reset();  // forgets all copies, and empties the store; the tables are reset next
  // Goes on as another one, whose tables and store were copied.
  void copy_from(const PageCopies& other);
  bool is_strict() const { return strict_; }

  // Strict: before n_tok tokens are appended. WEIR_ERR_BUDGET: the copies of the pages that they fill have no room;
  // WEIR_ERR_IO: the file failed while room was made; or failure(). No token is gone then.
  Status prepare(uint32_t n_tok);
  // Strict: whether a page of the conversation is lost. WEIR_ERR_IO: with the file; WEIR_ERR_FORMAT: it was damaged.
  Status failure() const;

  // Copies the pages that were sealed by the tokens from position `first` on; after a commit.
  void seal(uint32_t first);
  // The same of one page of all streams, of a pool that is not in host memory, from `pages` [n_streams, page_elements].
  void seal_row(uint32_t row, const uint16_t* pages) { seal_pages(row, row + 1, pages); }
  // Whether the next seal_row() looks at the tables.
  bool needs_tables() const;
  // After pages were sealed, with current tables: what was wanted lately becomes raw again. Returns whether a page
  // proved to be lost.
  bool make_raw_again();
  // Whether sealing n_rows pages of every stream, and make_raw_again() then, look at the stamps.
  bool needs_stamps(uint32_t n_rows) const;

  // Whether a page can be had, from the pool or from the store; whether it has no row, but a copy.
  bool has(uint32_t stream, uint32_t page) const;
  bool has_left(uint32_t stream, uint32_t page) const {
    return kv_->has_ring(stream) && kv_->copy_of(stream, page) != kNoCopy && !kv_->holds(stream, page);
  }
  // Whether the windows have all pages that the first token after n_tokens sees.
  bool has_windows(uint32_t n_tokens) const;
  // When the store has lost pages with its file, or as another store lost its: they have no copies any more.
  void look_at_losses();
  // Reads a page to `out` [page_elements]; false: it is lost. Of a pool that is not in host memory only pages that are
  // not there can be read.
  bool read(uint32_t stream, uint32_t page, uint16_t* out);

  // Brings a page that left back, to its row if it has one, or into a free row; the stream has a free slot. False: the
  // page is lost.
  bool bring_back(uint32_t stream, uint32_t page);
  // The same in three parts: KvCache::take_back(), read_copy() to the slot's memory on any thread, and this with what
  // it gave and the time that it took.
  void took_back(uint32_t stream, uint32_t row, weir_status status, uint64_t ns);
  // Reads the copy of a page, whatever the tables say about the page; a device may have them.
  Status read_copy(uint32_t stream, uint32_t page, void* out) const;
  // A row's copy could not be read: the page is lost, and with the file perhaps others are.
  void cannot_read(uint32_t stream, uint32_t row, Status status);

  // Whether cut() can be: false if a page that is cut is lost, or would have no slot or row, or a copy that a window
  // needs is damaged. Nothing changes, but that a copy which proves to be damaged is lost. Other pages that the windows
  // need and that are nowhere are the caller's business.
  bool can_cut(uint32_t n_tokens);
  // KvCache::truncate, with the copies: a last page that is no longer full comes back, into a slot or row of the pages
  // that are gone. Windows then get back what the next token sees and has a copy, from the newest full page to the
  // first that has none. With `refill` tables without recall get back what left, newest first, as far as they have
  // rows. False: can_cut() is, and nothing has changed; or a copy could not be read when it was needed, as the store's
  // file fails in between. That costs the tokens of its page, if this is the one that is cut, so that fewer than
  // n_tokens are left; else it is missing among those that came back.
  bool cut(uint32_t n_tokens, bool refill);

  // For a saved conversation. The copy of a page as SpillStore::get_block gives it; false: it has none that can be
  // read. Where a copy lies; false: there is none.
  bool get_block(uint32_t stream, uint32_t page, std::byte* block, uint32_t& block_bytes, SpillPlace& place);
  bool find_place(uint32_t stream, uint32_t page, SpillPlace& place) const;
  // And back, each page beginning with begin_page, in ascending order: the entries of pages that are older than the
  // rings are dropped.
  void begin_page(uint32_t page);
  // Gives a page its copy, and if its row is in the pool its bytes. When the store is full, the copy that is dropped
  // first has to go, perhaps this one. WEIR_ERR_FORMAT: the block is damaged, or another page's; strict:
  // WEIR_ERR_BUDGET instead of a loss; WEIR_ERR_DEVICE_LOST.
  Status put_block(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes, SpillPlace place);
  // Copies a page that is in the pool to this place, of a stream with a ring; if there is room.
  Status keep(uint32_t stream, uint32_t page, SpillPlace place);
  // A page comes without a copy. If it is not in the pool, it is lost, and in a strict store no token is appended then.
  void restore_without(uint32_t stream, uint32_t page);

  // Counters, readable from any thread. The first is of pages that a device has brought back itself.
  void set_recalled(uint64_t n) { recalled_.store(n, std::memory_order_relaxed); }
  void add_recall_ns(uint64_t ns) { recall_ns_.fetch_add(ns, std::memory_order_relaxed); }
  uint64_t pages_recalled() const { return recalled_.load(std::memory_order_relaxed); }
  uint64_t recall_ns() const { return recall_ns_.load(std::memory_order_relaxed); }

 private:
  // A stream has copies in its rows, or in a ring, or none. Spare copies are those of windows.
  bool has_rows(uint32_t stream) const { return kv_->shape().recalls() && kv_->window(stream) == 0; }
  bool is_spare(uint32_t stream) const { return kv_->shape().recalls() && kv_->window(stream) != 0; }
  uint32_t tag(uint32_t stream, uint32_t page) const;
  // The pages of a stream that may have copies.
  struct Span {
    uint32_t first, end;
  };
  Span pages_of(uint32_t stream) const;

  void seal_pages(uint32_t begin, uint32_t end, const uint16_t* pages);
  void copy_page(uint32_t stream, uint32_t page, const uint16_t* data);
  uint32_t put(uint32_t stream, uint32_t page, const void* data, bool drops_rows);
  bool copy_again();
  const void* pool_page(uint32_t slot);

  void lose(uint32_t stream, uint32_t page, weir_status why);
  void lose_copy(uint32_t stream, uint32_t page, Status status);
  bool drop_oldest(uint32_t before = UINT32_MAX);
  bool drop_stalest(uint32_t stream, uint32_t page = kNoRow);
  bool find_next_to_drop(uint32_t& stream);
  void find_min(uint32_t stream);

  bool can_reopen(uint32_t stream, uint32_t page);
  bool pool_can_hold(uint32_t row) const;
  bool can_read_windows(uint32_t n_tokens);
  void truncate(uint32_t n_tokens);
  bool refill(uint32_t stream, uint32_t n_tokens);
  void count_recall(bool came, uint64_t ns) {
    recalled_.fetch_add(came ? 1 : 0, std::memory_order_relaxed);
    recall_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  KvCache* kv_ = nullptr;
  SpillStore* store_ = nullptr;
  PoolAccess* pool_ = nullptr;
  uint32_t* min_ = nullptr;  // [n_streams] the row whose copy is dropped first, or kNoRow
  bool min_is_known_ = false;
  bool strict_ = false;
  struct State {
    bool lacks_copies = false;  // pages in the pool may have none in their rows
    uint32_t n_losses = 0;      // of the store, that the tables know of
    // Strict: why a page was lost, and the first position of the first such page.
    weir_status failure = WEIR_OK;
    const char* lost_how = "";
    uint32_t lost_pos = 0;
  } state_;
  std::atomic<uint64_t> recalled_{0}, recall_ns_{0};
};

}  // namespace weir
