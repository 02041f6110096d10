// What is done about a page that leaves a stream's pool, besides the tables: its event, and the digest of a page that
// is lost.
#pragma once

#include "cuda/pages/victim.cuh"
#include "kv/page_events.h"
#include "kv/step_state.h"

namespace weir::cuda {

#ifdef __CUDACC__

// Records the eviction event of a page, as KvCache::evict does. When one step evicts more pages than the ring holds,
// the first events are kept: two writers never use the same entry. Executed by one thread.
__device__ inline void record_event(StepState* state, const PageEventRing& ring, uint32_t n_kv_heads,
                                    const DeviceStream& s, uint32_t row, uint32_t n_tokens) {
  const uint64_t index = atomicAdd(reinterpret_cast<unsigned long long*>(&state->pages_evicted), 1ull);
  if (index - state->pages_evicted_before >= ring.capacity) return;
  ring.events[index & (ring.capacity - 1)] = {
      index, s.index / n_kv_heads, s.index % n_kv_heads, s.first_pos[row], s.len[row], s.flags[row], n_tokens};
}

// A page's digest becomes worse than any other: any estimate from NaN is NaN, which counts as -inf.
__device__ inline void spoil_digest(uint16_t* digest, uint32_t n_elements, uint32_t first, uint32_t stride) {
  for (uint32_t i = first; i < n_elements; i += stride) digest[i] = 0x7FC0;
}

#endif  // __CUDACC__

}  // namespace weir::cuda
