// The op page_accumulate: scores of pages from the attention that they got.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

struct PageAccumulateArgs {
  const float* weight;      // [n_heads, capacity] attention mass of each row
  float* score;             // in/out [n_kv_heads, capacity]
  const uint32_t* len;      // [n_kv_heads, capacity] tokens of each page
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  AccumulateRule rule;
  // With `mark`, every stream whose table is full gets one mark more at the page with the least score among those that
  // may leave (not the last row, no kPageStays), the lower row among equals. A NaN score counts as -inf.
  const uint32_t* flags = nullptr;  // [n_kv_heads, capacity] kPage*; read only with `mark`
  uint32_t* mark = nullptr;         // in/out [n_kv_heads, capacity]; null: no marks
  // kNoisy and kHits: tokens before the step's. kNoisy: positions [n_kv_heads, capacity] of the pages, and the number
  // of the layer's first stream. A mass that is NaN or below the normal numbers counts as 0.
  const uint32_t* n_tokens = nullptr;
  const uint32_t* first_pos = nullptr;
  uint32_t first_stream = 0;
  AccumulateOptions options = {};
};

}  // namespace weir
