// The kernels that fill pages with noise, for benchmarks.
#pragma once

#include <cstdint>

#include "kv/tables.h"
#include "ops/types.h"

namespace weir::device {

// Noise with the exponents of a model's keys and values in the pages of one table row, and their digests.
struct FillRowArgs {
  const uint32_t* slots;  // [n_streams] in host memory
  uint32_t row;
  KvTables tables;
  uint16_t* pool;
  uint16_t* pages;  // out, in host memory, like copy_row_out
  uint32_t head_dim;
  DigestKind digest;
  uint16_t* digests;  // of all layers, by row
  uint32_t digest_elements;
  uint64_t seed;
  KvFormat format = KvFormat::kBf16;
};

// Fills the pool with values in [-1, 1), for benchmarks; quantised pages with any codes and one scale.
struct FillNoiseArgs {
  uint16_t* pool;
  uint64_t n_elements;  // units of 16 bits
  uint64_t seed;
  KvFormat format = KvFormat::kBf16;
  uint32_t head_dim = 0;  // read unless the format is bf16
};

}  // namespace weir::device
