// The kernel page_recall, and the journal of what it brought back.
#pragma once

#include <cstdint>

#include "kv/device_recall.h"
#include "kv/page_events.h"
#include "kv/step_state.h"
#include "kv/tables.h"
#include "ops/step_rules.h"

namespace weir::device {

// The latest step in which a stream exchanged pages: one that the host repeats finds its own number here and brings
// nothing more. The rest is for the second kernel of page_recall.
struct RecallHead {
  uint32_t now;
  uint32_t n;  // entries
};
struct alignas(16) RecallEntry {
  uint32_t row, slot;
  uint32_t copy;  // raw slot, or kCopyElsewhere: the host sends it
  uint32_t left;  // the row that had the slot, or kNoRow
};

// Stamps what is wanted, brings back what of it is cold, and lists what is attended. If the host does not send a page
// in host.late_ns, or refuses to, state->is_late is set; the rest of the step then changes no tables and is not
// committed.
struct PageRecallArgs {
  KvTables tables;
  uint32_t layer;
  StepRules rules;
  StepState* state;
  uint32_t* select;    // in: what is wanted, out: what is attended [n_kv_heads, capacity]
  uint32_t* n_select;  // [n_kv_heads]
  uint32_t capacity;   // table rows of a stream of this layer
  uint32_t n_slots;    // pages of a stream in the pool
  uint16_t* digests;   // of this layer, by row
  uint32_t digest_elements;
  uint16_t* pool;
  uint32_t page_bytes;
  bool only_lists;            // nothing comes back (benchmarks)
  const uint32_t* raw_index;  // the device's copy of host.raw_index
  uint32_t* resident;         // [n_streams, resident_words(max_capacity)] a bit for each row whose page is in the pool
  uint32_t max_capacity;
  PageEventRing events;  // this and the rest but the journal in host memory
  DeviceRecall host;
  RecallHead* heads;     // [n_streams]
  RecallEntry* entries;  // [n_streams, host.most]
};

}  // namespace weir::device
