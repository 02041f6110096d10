// With recall: copies of the sealed pages of layers with a window of their own, which a rewind needs again after the
// window has moved past them. Steps never do, so they are the first that a full store drops, the oldest before the
// others, and nobody counts them. A page that cannot be copied has no copy.
#pragma once

#include <cstdint>

#include "kv/kv_cache.h"
#include "kv/spill_store.h"

namespace weir {

// Pages of a pool that is not in host memory, one at a time.
class PoolAccess {
 public:
  virtual std::byte* buffer() = 0;        // for one page
  virtual bool write(uint32_t slot) = 0;  // from the buffer; false: the device is lost
  virtual bool read(uint32_t slot) = 0;   // into the buffer

 protected:
  ~PoolAccess() = default;
};

class WindowCopies {
 public:
  // All outlive this. `pool`: null when the pool is in host memory.
  void start(KvCache& kv, SpillStore& store, PoolAccess* pool) {
    kv_ = &kv;
    store_ = &store;
    pool_ = pool;
  }
  // Makes this what `other` is; its tables and its store were copied.
  void copy_from(const WindowCopies& other) { oldest_ = other.oldest_; }
  void reset() { oldest_ = 0; }  // the store has been emptied, and the tables are reset next

  // Copies a page of all streams, which is in the pool and full. `pages`: null, or if the pool is not in host memory
  // what is in it, [n_streams, page_elements].
  void seal(uint32_t page, const uint16_t* pages);
  // Gives a copy up for room in the store; false: there are none.
  bool drop_one();

  // Whether a page of a local stream is in the pool or has a copy.
  bool has(uint32_t stream, uint32_t page) const;
  // Whether that holds for all pages that the first token after n_tokens sees.
  bool has_all(uint32_t n_tokens) const;
  // When the store has lost pages with its file: they have no copies any more.
  void look_at_losses();
  // Reads the copies that a rewind to n_tokens needs; false: some are damaged, and are no copies any more,
  // or a page that is cut is nowhere.
  bool can_be_read(uint32_t n_tokens);
  // After the tables were truncated to the end of a page: brings it back where it left. False: it is missing in a
  // stream.
  bool reopen(uint32_t page);
  // After the tables were truncated to n_tokens: brings back what the next token sees and has a copy, from the newest
  // full page to the first that has none, and forgets the copies of pages that are gone or no longer full. False: one
  // could not be read; it and those before it are missing.
  bool bring_back(uint32_t n_tokens);

 private:
  bool is_local(uint32_t stream) const { return kv_->window(stream) != 0; }
  bool is_resident(uint32_t stream, uint32_t page) const;
  uint32_t& copy_of(uint32_t stream, uint32_t page) const { return kv_->window_copies(stream)[page]; }
  void forget(uint32_t stream, uint32_t page);
  void forget_from(uint32_t page);
  // False: the page has no copy, or none that can be read.
  bool bring_back(uint32_t stream, uint32_t page);

  KvCache* kv_ = nullptr;
  SpillStore* store_ = nullptr;
  PoolAccess* pool_ = nullptr;
  uint32_t oldest_ = 0;  // no page before it has a copy
};

}  // namespace weir
