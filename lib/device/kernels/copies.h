// The kernels that copy pages between the pool and the host, and note which pages the pool has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/device_recall.h"
#include "kv/tables.h"

namespace weir::device {

// Makes the digests of pages that have neither a slot nor a copy worse than any other.
struct SpoilLostArgs {
  KvTables tables;
  const uint32_t* raw_index;
  uint16_t* digests;  // by row, of all layers
  uint32_t digest_elements;
};

// Makes the bits of PageRecallArgs::resident.
struct MarkResidentArgs {
  KvTables tables;
  uint32_t* resident;
  uint32_t max_capacity;
};

// Copies the page with the tokens from position row * 16 on of every stream to pages [n_streams, page_bytes] in host
// memory; of a stream with a window only if it is there.
struct CopyRowOutArgs {
  KvTables tables;
  uint32_t row;
  const uint16_t* pool;
  uint32_t page_bytes;
  std::byte* pages;
};

// Copies pages [n, page_bytes] in host memory to the pool's slots, or from there.
struct CopyPagesArgs {
  uint16_t* pool;
  uint32_t page_bytes;
  std::byte* pages;
  const uint32_t* slots;  // [n] host memory
  uint32_t n;
  bool in;
};

// Loads a unit of a prompt's earlier pages into its window.
struct LoadUnitArgs {
  DeviceRecall host;  // page_slots, unit_pos, unit_len; raw_pages and pages
  const uint16_t* pool;
  uint16_t* window;  // out [n_kv_heads, kSplitPages, page]
  uint32_t* slots;   // out, and the next two: [n_kv_heads, kSplitPages]
  uint32_t* first_pos;
  uint32_t* len;
  uint32_t* n_pages;  // out [n_kv_heads]
  uint32_t n_kv_heads, page_bytes;
};

}  // namespace weir::device
