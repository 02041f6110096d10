// Recall in a decode step: which of the wanted pages come back, over which pages, and their bytes.
#pragma once

#include "cuda/ops.h"
#include "kv/device_recall.h"

namespace weir::cuda {

// The latest step in which a stream exchanged pages: one that the host repeats finds its own number here and brings
// nothing more. The rest is for the second kernel of page_recall.
struct RecallHead {
  uint32_t now;
  uint32_t n;  // entries
};
struct alignas(16) RecallEntry {
  uint32_t row, slot;
  uint32_t copy;  // raw slot, or kNotRaw: the host sends it
  uint32_t left;  // the row that had the slot, or kNoRow
};

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

// Most wanted pages that are cold: pinned ones are always wanted, and at most as many as there are slots.
constexpr size_t most_wanted(const StepRules& rules, uint32_t n_slots) { return size_t{rules.select_budget} + n_slots; }

// The shared memory that the first kernel of page_recall takes: the candidates lie there. `capacity`: rows of a stream.
size_t page_recall_shared_bytes(const StepRules& rules, uint32_t n_slots, uint32_t capacity);

// Stamps what is wanted, brings back what of it is cold, and lists what is attended. Two kernels: the choice, and the
// copies. If the host does not send a page in host.late_ns, or refuses to, state->is_late is set; the rest of the step
// then changes no tables and is not committed.
Status page_recall(OpContext& cx, const PageRecallArgs& a);

// Makes the digests of pages that have neither a slot nor a copy worse than any other.
struct SpoilLostArgs {
  KvTables tables;
  const uint32_t* raw_index;
  uint16_t* digests;  // by row, of all layers
  uint32_t digest_elements;
};
Status spoil_lost(OpContext& cx, const SpoilLostArgs& a);

// Makes the bits of PageRecallArgs::resident.
Status mark_resident(OpContext& cx, const KvTables& tables, uint32_t* resident, uint32_t max_capacity);

// Copies the page with the tokens from position row * 16 on of every stream to pages [n_streams, page_bytes]; of a
// stream with a window only if it is there.
Status copy_row_out(OpContext& cx, const KvTables& tables, uint32_t row, const uint16_t* pool, uint32_t page_bytes,
                    std::byte* pages);
// Copies pages [n, page_bytes] to the pool's slots, or from there.
Status copy_pages(OpContext& cx, uint16_t* pool, uint32_t page_bytes, std::byte* pages, const uint32_t* slots,
                  uint32_t n, bool in);

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
Status load_unit(OpContext& cx, const LoadUnitArgs& a);

// Joins attention over one more unit of pages to that over the units before: out and lse become those of all. A row
// that sees nothing of a unit has an lse of kUnseen or less in it.
struct MergeUnitArgs {
  float* out;  // in/out [n_rows, head_dim]
  float* lse;  // in/out [n_rows]
  const float* unit_out;
  const float* unit_lse;
  uint32_t n_rows, head_dim;
};
Status merge_unit(OpContext& cx, const MergeUnitArgs& a);

// Noise with the exponents of a model's keys and values in the pages of one table row, and their digests.
struct FillRowArgs {
  const uint32_t* slots;  // [n_streams] in host memory
  uint32_t row;
  KvTables tables;
  uint16_t* pool;
  uint16_t* pages;  // out, in host memory, like copy_row_out
  uint32_t head_dim;
  DigestKind digest;
  uint16_t* digests;  // of all layers, by row
  uint32_t digest_elements;
  uint64_t seed;
};
Status fill_row(OpContext& cx, const FillRowArgs& a);

}  // namespace weir::cuda
