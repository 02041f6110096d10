// The op page_stamp: which pages mattered in a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/types.h"

namespace weir {

// Whether pages above a threshold are stamped, by the maximum over the group's heads; else the best ones, by the mean.
constexpr bool stamps_by_threshold(StampRule rule) {
  switch (rule) {
    case StampRule::kTopR:
      return false;
    case StampRule::kAlpha:
      return true;
  }
  return false;
}

// RaaS stamping of one layer (docs/algorithms.md, "RaaS"). Per stream, W[p] is the mean (kTopR) or maximum (kAlpha) of
// the group's weights. The ceil(r * m) best of the m ranked pages, or the pages with W > alpha, get stamp `now`; so
// does always the last row (the open page). last_score = W. Ties go to the lower row.
struct PageStampArgs {
  // [n_heads, capacity] probabilities over the stream's pages, indexed by table row or, with `select`, by list index.
  const float* weight;
  // [n_kv_heads, capacity] table rows of the weights, ascending; the other rows have weight 0; null: all rows.
  const uint32_t* select;
  const uint32_t* n_select;  // [n_kv_heads]; null with select
  uint32_t* stamp;           // in/out [n_kv_heads, capacity]
  float* last_score;         // out [n_kv_heads, capacity]
  const uint32_t* flags;     // [n_kv_heads, capacity] kPage*
  const uint32_t* n_pages;   // [n_kv_heads]
  uint32_t capacity, n_heads, n_kv_heads;
  uint32_t now;
  StampRule rule;
  bool rank_all;  // rank pinned pages too (rank_scope ALL)
  float r, alpha;
  uint32_t* gap = nullptr;  // in/out [n_kv_heads, capacity] the most that a stamp has moved, or null

  // What a hit does to row i of the tables.
  constexpr void hit(size_t i, uint32_t step) const {
    if (gap != nullptr && step > stamp[i] && step - stamp[i] > gap[i]) gap[i] = step - stamp[i];
    stamp[i] = step;
  }
};

}  // namespace weir
