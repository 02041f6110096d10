// Pages that left, in a ring of fixed size that whoever lets a page go writes to, the host or a device, and that nobody waits for: event i lies at
// i % capacity, i being the number of pages that left before. The newest events overwrite the oldest, with one exception: of a device's step that lets more
// pages go than the ring holds, the first events stay and the rest is not recorded, as its writers run side by side.
#pragma once

#include <bit>
#include <cstdint>

#include "weir/experimental.h"

namespace weir {

using PageEvent = weir_page_event;

// Most streams let a page go for every kPageTokens tokens, all in the same step: an application that looks once in 64 tokens misses none of these. After
// pages were unpinned, or around a prompt, more may go at once.
inline constexpr uint32_t kEventsPerStream = 4;

struct PageEventRing {
  PageEvent* events = nullptr;  // [capacity]; null: nobody records
  uint32_t capacity = 0;        // a power of two

  // Events of a ring for so many streams.
  static uint32_t capacity_for(uint32_t n_streams) { return std::bit_ceil(kEventsPerStream * n_streams); }

  // Copies events [at, end) to `out`, at most `n`, and moves `at` behind the last that was looked at; `end` pages have left until now. Returns how many
  // were there; n_lost counts those that were not.
  uint32_t read(uint64_t& at, uint64_t end, PageEvent* out, uint32_t n, uint64_t& n_lost) const;
};

}  // namespace weir
