// What page tables look like to those who only read and write them: policies, kernels and what enqueues these. Plain
// structs of pointers, whose members are the columns of columns.inc; lib/kv/kv_cache.h owns the memory and knows what
// may change when. KvView, the part of a layer's tables that attention needs, is an argument of operations
// (lib/ops/types.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// The copy of a page that has none in the spill store: in place of its handle, and where a device sees its raw slot.
inline constexpr uint32_t kNoCopy = UINT32_MAX;

// What a device sees of a page's copy, unless it is the number of a raw slot of the store or kNoCopy: the copy is
// compressed or in the file, and only the host can read it.
inline constexpr uint32_t kCopyElsewhere = UINT32_MAX - 1;

// A row of a table that is none.
inline constexpr uint32_t kNoRow = UINT32_MAX;

// What is saved of a row's entry in a column. kWithPlace: the entry, and KvCache::kPlaced if the page is in the pool.
enum class RowSaved : uint8_t { kNever, kAsIs, kWithPlace };

// The entries of one row.
struct RowValues {
#define WEIR_ROW(name, type, saved) type name = 0;
#include "kv/columns.inc"
};

// The columns of rows that follow each other in memory: those of all streams, or of one.
struct RowColumns {
#define WEIR_ROW(name, type, saved) type* name;
#include "kv/columns.inc"

  // The same from row i on.
  constexpr RowColumns from(size_t i) const {
    RowColumns c = *this;
#define WEIR_ROW(name, type, saved) c.name += i;
#define WEIR_ROW_IF(name, type, is_there, saved) \
  if (c.name != nullptr) c.name += i;
#include "kv/columns.inc"
    return c;
  }
  constexpr RowValues get(size_t i) const {
    RowValues v;
#define WEIR_ROW(name, type, saved) v.name = name[i];
#define WEIR_ROW_IF(name, type, is_there, saved) \
  if (name != nullptr) v.name = name[i];
#include "kv/columns.inc"
    return v;
  }
  constexpr void set(size_t i, const RowValues& v) const {
#define WEIR_ROW(name, type, saved) name[i] = v.name;
#define WEIR_ROW_IF(name, type, is_there, saved) \
  if (name != nullptr) name[i] = v.name;
#include "kv/columns.inc"
  }
};

// One stream's table, as policies see it. Rows are pages in ascending position; the last one is open (filling, or just
// full).
struct StreamView : RowColumns {
#define WEIR_HOST_ROW(name, type, is_there, none) type* name;
#include "kv/columns.inc"
  uint32_t n_pages;
  uint32_t capacity;
  uint32_t n_resident;  // pages in the pool; without recall n_pages
  uint32_t n_slots;     // the maximum of n_resident; without recall the capacity; in one pool the stream's part
  uint32_t n_free;      // slots that the stream can take; in one pool any stream
  // With recall: the page has neither a slot nor a copy.
  bool is_lost(uint32_t row) const { return slots[row] == kNoSlot && copies[row] == kNoCopy; }
};

// The tables of all streams, for the kernels of a device. The rows of a stream are contiguous, and streams are in
// order.
struct KvTables : RowColumns {
#define WEIR_STREAM(name, is_there) uint32_t* name;  // null if it is not there
#define WEIR_SLOT(name) uint32_t* name;
#define WEIR_BOUND(name, n) uint32_t* name;
#include "kv/columns.inc"
  uint32_t n_layers, n_kv_heads;
  uint32_t ruled_stream;  // KvShape::last_ruled_stream
  bool has_windows;       // any
  // First pages that stay in a stream with a window of its own, in layers that have none. global_every 0: no layer has
  // one; otherwise all but every global_every-th have.
  uint32_t front_pages, global_every;
  constexpr bool is_local(uint32_t stream) const {
    return global_every != 0 && (stream / n_kv_heads + 1) % global_every != 0;
  }
  // The same of one stream with a window.
  constexpr uint32_t front_of(uint32_t stream) const { return is_local(stream) ? 0 : front_pages; }
};

// What changes besides the tables when pages come and go.
struct KvCounters {
  uint32_t n_tokens;
  uint64_t pages_resident, pages_resident_max, pages_evicted, prompt_pages_evicted;
  uint64_t pages_cold, pages_lost;  // with recall
};

}  // namespace weir
