// What happens to the open pages of all streams (KvView::open) besides appending, where they are in device memory: the
// table of pages says what, and the device does it when it gets the tables.
#pragma once

#include <cstdint>

namespace weir {

struct OpenMove {
  uint32_t from, to;      // open pages, by the number of their array; equal: the rows come from the pool
  uint32_t page, n_rows;  // then: positions page * 16 and the next ones, in bf16 what they were rounded to
  constexpr bool is_copy() const { return from != to; }
};

}  // namespace weir
