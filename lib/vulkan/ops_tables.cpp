#include "vulkan/ops_tables.h"

#include "vulkan/kv_ranges.h"

namespace weir::vulkan {

TablesAt touch_tables(Touches& touches, const KvTables& t, bool writes) {
  const auto rows = [&](void* table) {
    const uint64_t bytes = bytes_from(table);
    return writes ? touches.writes(table, bytes) : touches.reads(table, bytes);
  };
  TablesAt at = {};
#define WEIR_ROW(name, type, saved) at.name = rows(t.name);
#define WEIR_STREAM(name, is_there) at.name = rows(t.name);
#define WEIR_SLOT(name) at.name = rows(t.name);
#define WEIR_BOUND(name, n) at.name = touches.reads(t.name, bytes_from(t.name));
#include "kv/columns.inc"
  return at;
}

}  // namespace weir::vulkan
