// The kernel page_softmax.
#pragma once

#include <cstdint>

namespace weir::device {

// softmax(scale * score) over the table rows in use of each head, in place. It turns digest estimates into weights, for
// RaaS with stamps from digests.
struct PageSoftmaxArgs {
  float* score;             // in/out [n_heads, capacity]
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  float scale;
};

}  // namespace weir::device
