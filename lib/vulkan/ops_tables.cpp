#include "vulkan/ops_tables.h"

#include "vulkan/kv_ranges.h"

namespace weir::vulkan {

TablesAt touch_tables(Touches& touches, const KvTables& t, bool writes) {
  const auto rows = [&](void* table) {
    const uint64_t bytes = bytes_from(table);
    return writes ? touches.writes(table, bytes) : touches.reads(table, bytes);
  };
  const uint64_t per_stream = n_streams(t) * sizeof(uint32_t), ends = per_stream + sizeof(uint32_t);
  return {rows(t.slots),
          rows(t.first_pos),
          rows(t.len),
          rows(t.flags),
          rows(t.stamp),
          rows(t.last_score),
          rows(t.prompt_score),
          rows(t.n_pages),
          rows(t.append_row),
          rows(t.free_slots),
          rows(t.n_resident),
          touches.reads(t.row_begin, ends),
          touches.reads(t.slot_begin, ends),
          touches.reads(t.window, per_stream)};
}

}  // namespace weir::vulkan
