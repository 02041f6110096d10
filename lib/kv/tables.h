// What page tables look like to those who only read and write them: policies, kernels and what enqueues these. Plain
// structs of pointers; lib/kv/kv_cache.h owns the memory and knows what may change when. KvView, the part of a layer's
// tables that attention needs, is an argument of operations (lib/ops/ops.h).
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace weir {

// The copy of a page that has none in the spill store: in place of its handle, and where a device sees its raw slot.
inline constexpr uint32_t kNoCopy = UINT32_MAX;

// What a device sees of a page's copy, unless it is the number of a raw slot of the store or kNoCopy: the copy is
// compressed or in the file, and only the host can read it.
inline constexpr uint32_t kCopyElsewhere = UINT32_MAX - 1;

// A row of a table that is none.
inline constexpr uint32_t kNoRow = UINT32_MAX;

// One stream's table, as policies see it. Rows are pages in ascending position; the last one is open (filling, or just
// full).
struct StreamView {
  uint32_t* slots;      // [n_pages] slot in the pool; kNoSlot: the page is cold
  uint32_t* first_pos;  // [n_pages] position of the first token
  uint32_t* len;        // [n_pages] tokens
  uint32_t* flags;      // [n_pages] kPage*
  // [n_pages] last step in which the page mattered, as a number of tokens; with tova's decide=token first_pos + 1 and
  // the number of marks
  uint32_t* stamp;
  float* last_score;    // [n_pages] its latest weight
  float* prompt_score;  // [n_pages] how much attention the end of the prompt gives to it; null without a prompt policy
  uint32_t* copies;     // [n_pages] handle in the spill store, or kNoCopy; null without recall
  uint32_t n_pages;
  uint32_t capacity;
  uint32_t n_resident;  // pages in the pool; without recall n_pages
  uint32_t n_slots;     // most of them; without recall the capacity; in one pool the stream's part
  uint32_t n_free;      // slots that the stream can take; in one pool any stream
  // With recall: the page has neither a slot nor a copy.
  bool is_lost(uint32_t row) const { return slots[row] == kNoSlot && copies[row] == kNoCopy; }
};

// The tables of all streams, for the kernels of a device. The rows of a stream are contiguous, and streams are in
// order.
struct KvTables {
  uint32_t* slots;
  uint32_t* first_pos;
  uint32_t* len;
  uint32_t* flags;
  uint32_t* stamp;
  float* last_score;
  float* prompt_score;   // may be null
  uint32_t* n_pages;     // [n_streams]
  uint32_t* append_row;  // [n_streams]
  // [n_slots] a stack of free slots per stream. It uses the first capacity - n_pages entries of the stream's rows, with
  // the top at the last of them.
  uint32_t* free_slots;
  uint32_t* n_resident;        // [n_streams] pages in the pool; null without recall, when all are
  const uint32_t* row_begin;   // [n_streams + 1] a stream's first row; its capacity is the distance to the next one's
  const uint32_t* slot_begin;  // [n_streams + 1] the same of its entries in free_slots; without recall row_begin
  const uint32_t* window;      // [n_streams] positions that it sees; 0: all
  uint32_t n_layers, n_kv_heads;
  uint32_t ruled_stream;  // KvShape::last_ruled_stream
  bool has_windows;       // any
};

// What changes besides the tables when pages come and go.
struct KvCounters {
  uint32_t n_tokens;
  uint64_t pages_resident, pages_resident_max, pages_evicted, prompt_pages_evicted;
  uint64_t pages_cold, pages_lost;  // with recall
};

}  // namespace weir
