// What the test module's kernels share.
#pragma once

#include "core/status.h"
#include "device/kernels.h"
#include "kv/tables.h"
#include "ops/ops.h"
#include "policy/rules.h"

namespace weir::host_module {

// Memory that kernels leave zero for each other; `what` is for the message.
inline Status expect_zero(const uint32_t* counter, uint32_t n, const char* what) {
  for (uint32_t i = 0; i < n; ++i) {
    if (counter[i] != 0) return fail(WEIR_ERR_INTERNAL, "%s: counter %u is %u, not 0", what, i, counter[i]);
  }
  return {};
}

inline uint32_t n_streams(const KvTables& t) { return t.n_layers * t.n_kv_heads; }

// A stream's part of the tables. With recall, `raw_index` says which rows have copies.
inline StreamView stream_of(const KvTables& t, uint32_t index, const uint32_t* raw_index = nullptr) {
  const uint32_t first = t.row_begin[index], n = t.n_pages[index];
  StreamView s = {};
  static_cast<RowColumns&>(s) = t.from(first);
  if (raw_index != nullptr) s.copies = const_cast<uint32_t*>(raw_index) + first;  // nobody writes to them
  s.n_pages = n;
  s.n_resident = t.n_resident != nullptr ? t.n_resident[index] : n;
  s.n_slots = t.slot_begin[index + 1] - t.slot_begin[index];
  s.capacity = t.n_resident != nullptr ? t.row_begin[index + 1] - first : s.n_slots;
  s.n_free = s.n_slots - s.n_resident;
  return s;
}

// With recall: the bits of DeviceBuffers::resident.
constexpr uint32_t resident_words(uint32_t n_rows) { return (n_rows + 31) / 32; }
inline void mark_row(uint32_t* resident, uint32_t max_capacity, uint32_t stream, uint32_t row, bool is_there) {
  uint32_t& word = resident[size_t{stream} * resident_words(max_capacity) + row / 32];
  word = is_there ? word | 1u << row % 32 : word & ~(1u << row % 32);
}

// Makes a digest worse than any other.
inline void spoil_digest(uint16_t* digest, uint32_t n_elements) {
  for (uint32_t i = 0; i < n_elements; ++i) digest[i] = 0x7FC0;  // NaN
}

}  // namespace weir::host_module
