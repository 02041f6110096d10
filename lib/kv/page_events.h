// Evicted pages, in a ring buffer of fixed size. The host or a device, whichever evicts the page, writes to it; nobody
// waits for it. Event i, where i is the number of pages evicted before, is at index i % capacity.
//
// The newest events overwrite the oldest, with one exception: when one step of a device evicts more pages than the ring
// holds, the first events stay and the rest is not recorded, because its writers run in parallel.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "weir/experimental.h"

namespace weir {

using PageEvent = weir_page_event;

// Most streams evict a page every kPageTokens tokens, all in the same step. An application that reads the events once
// in 64 tokens misses none of these. More pages may leave at once after pages were unpinned, or around a prompt. With
// recall a page may leave for each that comes back, in the worst case all pages of the pool in one step. Where several
// pages leave a stream at once, these are as many more in 64 tokens.
inline constexpr uint32_t kEventsPerStream = 4;

inline constexpr uint64_t kMaxEvents = 1u << 20;

struct PageEventRing {
  PageEvent* events = nullptr;  // [capacity]; null: nothing is recorded
  uint32_t capacity = 0;        // a power of two

  // Entries of a ring for n_streams streams, of which with recall recall_slots pages may leave in a step, and otherwise
  // at_once (0: one).
  static uint32_t capacity_for(uint32_t n_streams, uint32_t recall_slots, uint32_t at_once) {
    const uint64_t of_stream = std::max(uint64_t{kEventsPerStream} + at_once, uint64_t{recall_slots});
    return static_cast<uint32_t>(std::bit_ceil(std::min(of_stream * n_streams, kMaxEvents)));
  }

  // Copies events [at, end) to `out`, at most `n` of them, and moves `at` past the last event that was read; `end` is
  // the number of pages evicted so far. Returns the number of events copied; n_lost counts those that were overwritten
  // or not recorded.
  uint32_t read(uint64_t& at, uint64_t end, PageEvent* out, uint32_t n, uint64_t& n_lost) const;
};

}  // namespace weir
