// Without recall: copies of the pages that a policy lets go. A page is copied to the store when it is sealed; steps and
// prompts never read the copies, so that they do what they would do without a store. They are there to go back in the
// conversation (truncate) and for whoever saves it. Only streams whose tables cannot hold the context have copies.
//
// When the store is full, the copies of the oldest positions are dropped, of equal positions those of the first stream.
// The tables of copies are rings of as many pages as the store can hold: what is older has no copy any more, and takes
// no entry, however long the conversation becomes.
#pragma once

#include <cstdint>

#include "kv/kv_cache.h"
#include "kv/spill_store.h"

namespace weir {

class PageArchive {
 public:
  // Both outlive this. The cache has been reset.
  void start(KvCache& kv, SpillStore& store);
  bool is_on() const { return store_ != nullptr; }
  // Goes on as another one, whose tables and store were copied.
  void copy_from(const PageArchive& other) { n_losses_ = other.n_losses_; }
  void reset();  // forgets all copies, and empties the store; the tables are reset next

  // Copies the pages that were sealed by the tokens from position `first` on; after a commit.
  void seal(uint32_t first);
  // Whether a page can be had, from the pool or from the store.
  bool has(uint32_t stream, uint32_t page) const;
  // When the store has lost pages with its file: they have no copies any more, and are counted.
  void look_at_losses();
  // Reads a page to `out` [page_elements]; false: it is lost.
  bool read(uint32_t stream, uint32_t page, uint16_t* out);
  // KvCache::truncate, with the copies; a page that is cut comes back if it left. With `refill` the tables then get
  // back what left of the tokens before, newest first, as far as they have rows. False: the page that is cut is lost,
  // or its table has no row for it, and nothing has changed; or a copy could not be read when it was needed. If that is
  // the page that is cut, its tokens are gone, else it is missing among those that came back.
  bool truncate(uint32_t n_tokens, bool refill);

  // For a saved conversation. The copy of a page that left, as SpillStore::get_block gives it; false: it is lost. Where
  // the copy of a page in the pool lies; false: it has none.
  bool get_block(uint32_t stream, uint32_t page, std::byte* block, uint32_t& block_bytes, SpillPlace& place);
  bool find_place(uint32_t stream, uint32_t page, SpillPlace& place) const;
  // And back, each sealed page beginning with make_entries, which is for its copies: the entries of pages that are
  // older than the ring are theirs.
  void make_entries(uint32_t page);
  // In ascending order of page and stream, while the tables have all rows: gives a page that left its copy.
  // When the store is full, the oldest copies go. WEIR_ERR_FORMAT: the block is damaged, or another page's.
  Status put_block(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes, SpillPlace place);
  // Copies a page that is in the pool to this place.
  Status copy_again(uint32_t stream, uint32_t page, SpillPlace place);
  // What one of `n_pages` sealed pages is when it comes back, before any of their copies are there.
  void restore_flag(uint32_t page, uint8_t flag, uint32_t n_pages) {
    const uint32_t n = kv_->shape().archive_entries();
    if (page + n >= n_pages) kv_->archive_flags()[page % n] = flag;
  }
  // Counts `n` restored pages that had left and have no copy.
  void restore_without(uint64_t n) {
    kv_->count_left(n);
    kv_->count_dropped(n);
  }

 private:
  Status put(uint32_t stream, uint32_t page, const std::byte* block, uint32_t block_bytes, SpillPlace place);
  bool drop_one();
  void drop(uint32_t stream, uint32_t page);
  void forget_all();
  void lose(uint32_t stream, uint32_t page);
  void forget(uint32_t stream, uint32_t page);
  bool can_be_cut(uint32_t stream, uint32_t page) const;
  bool put_back(uint32_t stream, uint32_t page);
  void drop_from(uint32_t page);

  KvCache* kv_ = nullptr;
  SpillStore* store_ = nullptr;
  uint32_t n_losses_ = 0;  // of the store, that the tables know of
};

}  // namespace weir
