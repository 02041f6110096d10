// The op page_select: the pages that a step attends.
#pragma once

#include <cstdint>

#include "ops/types.h"

namespace weir {

// Whether the group's score is the mean over its heads.
constexpr bool agg_is_mean(AggMode agg) {
  switch (agg) {
    case AggMode::kMeanRaw:
    case AggMode::kQHead:
      return true;
    case AggMode::kSumProb:
    case AggMode::kMaxProb:
    case AggMode::kMaxRaw:
    case AggMode::kMaxZ:
      return false;
  }
  return false;
}

// Top-k page selection by estimate (docs/algorithms.md, "Quest"). The pages of a stream with any of `candidate_flags`
// (0: all pages) compete for `budget` pages; the other pages are all listed as well. The last row (the open page), the
// first n_sink_pages rows and pages with kPageKept are always listed, and count in the budget if they compete. The
// estimate of the last row is not read. Ties go to the lower row. A NaN estimate counts as -inf.
struct PageSelectArgs {
  const float* score;  // [n_heads, capacity] unscaled estimates
  // Out [n_kv_heads, capacity]: score of the group (logarithms for kSumProb and kMaxProb, the mean of the estimates for
  // kQHead); 0 for pages that do not compete and for the last one.
  float* group_score;
  uint32_t* select;         // out [n_lists, capacity] ascending rows; n_lists is n_heads for kQHead, else n_kv_heads
  uint32_t* n_select;       // out [n_lists]
  const uint32_t* flags;    // [n_kv_heads, capacity] kPage*
  const uint32_t* n_pages;  // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  float scale;  // of the logits, for the softmax of kSumProb and kMaxProb
  AggMode agg;
  uint32_t budget;  // pages, at least 1
  uint32_t candidate_flags;
  uint32_t n_sink_pages;
};

}  // namespace weir
