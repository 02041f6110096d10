// The pages of a decode step that stops by itself, of a session that recalls pages: microbatch by microbatch, the pages
// that attention asks for come back from the store, over those that were attended the longest ago. Pages that may be
// asked for next are read meanwhile, by threads that have nothing else to do, into memory of their own: what is in the
// pool depends on what was asked for, and never on threads.
// docs/algorithms.md, "PSA with recall".
#pragma once

#include <algorithm>

#include "kv/kv_cache.h"
#include "ops/attn_stop.h"
#include "ops/types.h"

namespace weir {

class PageCopies;

class PageFetcher final : public PageSource {
 public:
  // With memory for microbatches of up to `microbatch` pages; null while the arena measures.
  static PageFetcher* lay_out(uint32_t n_kv_heads, uint64_t page_bytes, uint32_t microbatch, Arena& arena);

  // The pages that were read ahead, [n_kv_heads, 2, microbatch], after the conversation that had them.
  void wipe_pages() {
    wipe(streams_[0].pages, uint64_t{2} * n_kv_heads_ * microbatch_ * page_elements_ * sizeof(uint16_t));
  }

  // For the attention of one layer in step `now`, which is the stamp of what it attends. Both outlive it. The first
  // `n_front_rows` pages of a stream never leave.
  PageSource* start(KvCache& kv, PageCopies& copies, uint32_t layer, uint32_t now, uint32_t n_front_rows);

  uint32_t want(uint32_t kv_head, uint32_t* rows, uint32_t n, const uint32_t* ahead, uint32_t n_ahead) override;
  uint32_t load(uint32_t kv_head, uint32_t* rows, uint32_t n) override;
  void settle(uint32_t kv_head) override;
  void read_ahead(uint32_t kv_head) override;

 private:
  // A page that is asked for.
  struct Read {
    uint32_t row;
    weir_status status;
    uint16_t* to;          // its slot
    const uint16_t* from;  // where it is, read ahead; null: in the store
    uint64_t ns;
  };
  struct Ahead {
    uint32_t row;
    weir_status status;
    uint16_t* to;
    bool is_read;
    uint64_t ns;
  };
  // A page that may leave, and what decides when, in this order: how long it was not attended (in one pool in runs of
  // its layer), when its layer runs next if it has run in this step, in layers from this one on, else 0, and its score.
  struct Victim {
    uint32_t stream, row, stamp, age, next_run;
    float score;
    bool before(const Victim& other) const;
  };
  static constexpr uint32_t kVictims = 32;  // found in one pass over the tables
  // A KV head's.
  struct Stream {
    uint32_t n_coming, n_ahead, n_kept;
    Read coming[kSplitPages];
    Ahead ahead[kSplitPages];
    uint32_t kept[2 * kSplitPages];  // rows that do not leave: what is attended now, and what may be next
    uint16_t* pages;  // [2, microbatch, page_elements]: what was read ahead for this microbatch, and for the next
    uint32_t parity;  // which of the two is for the next
  };

  uint32_t index(uint32_t kv_head) const { return layer_ * n_kv_heads_ + kv_head; }
  uint16_t* page(const Stream& s, uint32_t i) const { return s.pages + (s.parity * microbatch_ + i) * page_elements_; }
  bool begin_read(uint32_t kv_head, uint32_t row);
  bool evict_for(uint32_t stream);
  void find_victims(uint32_t stream);
  void add_victims(uint32_t stream, bool of_this_step);
  bool is_kept(uint32_t stream, uint32_t row) const;

  Stream* streams_ = nullptr;  // [n_kv_heads]
  KvCache* kv_ = nullptr;
  PageCopies* copies_ = nullptr;
  // What leaves next, unless it was attended since: pages of one stream, or in one pool of all.
  Victim victims_[kVictims];
  uint32_t n_victims_ = 0, next_victim_ = 0, victims_of_ = 0;
  uint32_t layer_ = 0, now_ = 0, n_front_rows_ = 0, n_kv_heads_ = 0, microbatch_ = 0;
  size_t page_elements_ = 0;
};

}  // namespace weir
