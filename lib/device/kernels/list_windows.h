// The kernel list_windows.
#pragma once

#include <cstdint>

namespace weir::device {

// Lists all rows in use of the streams with windows of their own, and leaves the lists of the others as they are.
struct ListWindowsArgs {
  uint32_t* select;         // [n_lists, capacity]
  uint32_t* n_select;       // [n_lists]
  const uint32_t* windows;  // [n_kv_heads] 0: the stream has none
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_lists, n_kv_heads;
};

}  // namespace weir::device
