// The kernel rotate_heads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::device {

// rotate_rows (ops/hadamard.h) for heads of a multiple of 32 elements, with the same bits: of values before they are
// appended, and of what attention makes of them, where attn_decode does not do that itself.
struct RotateHeadsArgs {
  float* x;  // in/out [n_rows, head_dim]
  size_t n_rows;
  uint32_t head_dim;
  bool overlap;
};

}  // namespace weir::device
