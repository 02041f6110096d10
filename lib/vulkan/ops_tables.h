// Page tables as kernels take them.
#pragma once

#include "kv/kv_cache.h"
#include "vulkan/recorder.h"

namespace weir::vulkan {

inline uint32_t n_streams(const KvTables& t) { return t.n_layers * t.n_kv_heads; }

// Tables do not say how many rows they have: their ranges are larger. `writes`: the kernel changes them.
TablesAt touch_tables(Touches& touches, const KvTables& t, bool writes);

}  // namespace weir::vulkan
