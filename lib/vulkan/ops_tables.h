// Page tables as kernels take them.
#pragma once

#include "kv/tables.h"
#include "vulkan/recorder.h"

namespace weir::vulkan {

inline uint32_t n_streams(const KvTables& t) { return t.n_layers * t.n_kv_heads; }

// With recall: words of a stream in PageRecallArgs::resident.
constexpr uint32_t resident_words(uint32_t max_capacity) { return (max_capacity + 31) / 32; }

// Tables do not say how many rows they have: their ranges are larger. `writes`: the kernel changes them.
TablesAt touch_tables(Touches& touches, const KvTables& t, bool writes);

}  // namespace weir::vulkan
