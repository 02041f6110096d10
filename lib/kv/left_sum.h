// What kernels see of the sums of what has left a window; see left_sums.h.
#pragma once

#include <cstdint>

namespace weir {

// One stream's.
struct LeftSum {
  uint32_t n_tokens = 0;
  uint32_t end = 0;  // position after the last of them
};

}  // namespace weir
