// When attention that takes the most important pages first stops, and where its pages come from.
#pragma once

#include <cstdint>

namespace weir {

// When attention that takes the most important pages first has seen enough (docs/algorithms.md, "PSA").
struct AttnStop {
  const float* rank = nullptr;      // [n_kv_heads, capacity] importance of each row; NaN counts as -inf
  const uint32_t* flags = nullptr;  // [n_kv_heads, capacity] kPage*
  // [n_heads, capacity] true upper bounds of q.k over each page, unscaled, for all rows in use. What is left is then at
  // most what they say, and the lists must hold all rows. Null: each page that is left has at most as much as the least
  // full page so far.
  const float* bound = nullptr;
  uint32_t n_sink_pages = 0;  // first rows that are taken first
  uint32_t microbatch = 0;    // pages that are attended before the next look, 1..kSplitPages; 0: does not stop
  float eps = 1.0f;           // enough is a share of more than this; 1 or more: nothing is
  // > 0: instead enough is this number of pages one after the other of which none had more than quiet_share of what had
  // been seen with it. eps and bound are not used then.
  uint32_t quiet_pages = 0;
  float quiet_share = 0.0f;
};

// Pages of attention that stops, some of which may not be in the pool. Per KV head: want() what is attended next,
// load() it, attend it; settle() when all KV heads have loaded. load() and read_ahead() may run for several KV heads at
// the same time, while nothing else does.
class PageSource {
 public:
  // Gives the rows [n] that are attended next slots, and drops those that are lost from the list; returns how many are
  // left. The rows keep their slots until the next call for this KV head, and so do the rows `ahead` [n_ahead], which
  // may be wanted then, if they have one.
  virtual uint32_t want(uint32_t kv_head, uint32_t* rows, uint32_t n, const uint32_t* ahead, uint32_t n_ahead) = 0;
  // Reads those that were not in the pool, and drops those that cannot be read; returns how many are left.
  virtual uint32_t load(uint32_t kv_head, uint32_t* rows, uint32_t n) = 0;
  virtual void settle(uint32_t kv_head) = 0;
  // Reads the rows `ahead` of the last want(), in case they are wanted.
  virtual void read_ahead(uint32_t kv_head) = 0;

 protected:
  ~PageSource() = default;
};

}  // namespace weir
