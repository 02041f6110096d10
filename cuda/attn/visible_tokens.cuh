// Which tokens of a listed page a query row sees, for the attention kernels with many rows.
#pragma once

#include "cuda/common/base.cuh"
#include "ops/attn_paged.h"

namespace weir::cuda {

#ifdef __CUDACC__

// The pages that one stream's query heads attend, in ascending order of position.
struct PageList {
  const uint32_t* rows;  // table rows; null: all rows in use
  uint32_t n;
  size_t table;  // of the stream, in the page tables

  __device__ PageList(const AttnPagedArgs& a, uint32_t kv_head, uint32_t list) {
    table = size_t{kv_head} * a.kv.capacity;
    rows = a.select != nullptr ? a.select + size_t{list} * a.kv.capacity : nullptr;
    n = a.select != nullptr ? a.n_select[list] : a.kv.n_pages[kv_head];
  }
  __device__ uint32_t row(uint32_t i) const { return rows != nullptr ? rows[i] : i; }
};

// What a KV head sees: its own window, if it has one, or that of all.
struct Sight {
  uint32_t window, n_sink;  // as in AttnPagedArgs

  // Lowest position inside the window of a query at position t.
  __device__ uint32_t begin(uint32_t t) const { return window > 0 && t >= window ? t - window + 1 : 0; }
};
__device__ inline Sight sight_of(const AttnPagedArgs& a, uint32_t kv_head) {
  if (has_own_window(a, kv_head)) return {a.head_windows[kv_head], a.head_sinks};
  return {a.window, a.n_sink};
}

// Number of tokens at the front of a page that use q_sink.
__device__ inline uint32_t sink_tokens(const AttnPagedArgs& a, uint32_t row, uint32_t first_pos, uint32_t len) {
  if (a.q_sink == nullptr || row >= a.n_sink_pages) return 0;
  if (a.window == 0) return len;
  return first_pos < a.n_sink ? min(len, a.n_sink - first_pos) : 0;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
