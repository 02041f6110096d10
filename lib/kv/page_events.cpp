// Reading the ring of page events. The index of an entry tells whether it is the event that is looked for.
#include "kv/page_events.h"

#include <algorithm>

namespace weir {

uint32_t PageEventRing::read(uint64_t& at, uint64_t end, PageEvent* out, uint32_t n, uint64_t& n_lost) const {
  if (end - at > capacity) {
    // More events than the ring holds, so every entry was written: continue with the oldest that is there.
    uint64_t oldest = end;
    for (uint32_t i = 0; i < capacity; ++i)
      if (events[i].index >= at) oldest = std::min<uint64_t>(oldest, events[i].index);
    n_lost += oldest - at;
    at = oldest;
  }
  uint32_t n_read = 0;
  for (; at < end && n_read < n; ++at) {
    const PageEvent& event = events[at % capacity];
    if (event.index == at) {
      out[n_read++] = event;
    } else {
      // A device's step evicted more pages than the ring holds, or a later event has overwritten this one.
      ++n_lost;
    }
  }
  return n_read;
}

}  // namespace weir
