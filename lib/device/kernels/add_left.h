// The kernel add_left.
#pragma once

#include <cstdint>

#include "kv/left_sum.h"
#include "kv/tables.h"
#include "ops/kv_format.h"

namespace weir::device {

// Sums of what has left the streams with windows of their own that compensate (lib/kv/left_sums.h), in the order of
// these streams.
struct LeftAt {
  LeftSum* sums = nullptr;  // null: nothing is added up
  float* values = nullptr;  // [n, 2, head_dim]
  const uint16_t* pool = nullptr;
  uint32_t head_dim = 0;
  KvFormat format = KvFormat::kBf16;  // of the pool's pages
};

// Adds the tokens of all pages that windows have passed when position n_tokens is next, which the host lets go then.
struct AddLeftArgs {
  KvTables tables;
  LeftAt left;
  uint32_t n_tokens;
};

}  // namespace weir::device
