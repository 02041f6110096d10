// Recall in a decode step: which of the wanted pages come back, over which pages, and their bytes.
#pragma once

#include "cuda/ops.h"
#include "device/kernels.h"
#include "kv/tables.h"
#include "ops/step_rules.h"

namespace weir::cuda {

using device::FillRowArgs;
using device::LoadUnitArgs;
using device::PageRecallArgs;
using device::RecallEntry;
using device::RecallHead;
using device::SpoilLostArgs;

// Most wanted pages that are cold: pinned ones are always wanted, and at most as many as there are slots.
constexpr size_t max_wanted(const StepRules& rules, uint32_t n_slots) { return size_t{rules.select_budget} + n_slots; }

// The shared memory that the first kernel of page_recall takes: the candidates lie there. `capacity`: rows of a stream.
size_t page_recall_shared_bytes(const StepRules& rules, uint32_t n_slots, uint32_t capacity);

// Stamps what is wanted, brings back what of it is cold, and lists what is attended. Two kernels: the choice, and the
// copies. If the host does not send a page in host.late_ns, or refuses to, state->is_late is set; the rest of the step
// then changes no tables and is not committed.
Status page_recall(OpContext& cx, const PageRecallArgs& a);

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

Status fill_row(OpContext& cx, const FillRowArgs& a);

}  // namespace weir::cuda
