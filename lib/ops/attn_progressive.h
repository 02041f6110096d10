// The op attn_progressive: attention that stops when it has seen enough.
#pragma once

#include <cstdint>

#include "ops/attn_paged.h"
#include "ops/attn_stop.h"

namespace weir {

// Attention of one query row over the listed pages in order of importance: the last row, the first n_sink_pages and
// pages with kPageKept (the forced ones, by row), then the others by rank, the lower row first of equals. After each
// page every head of a KV head's group has the sum S of exp(logit) over what it has seen, and an estimate R of the sum
// over the rows that are left, listed or not; a head is done once S / (S + R) > eps. R is the number of rows left times
// the least sum of a full page that is not forced, and there is none before such a page; with AttnStop::bound it is the
// sum of len * exp(bound) over the rows left. With quiet_pages a head is done instead after so many pages in a row of
// which each had at most quiet_share * S. After a microbatch in which the last head of the group was done, or that had
// the last listed page, the list becomes the pages taken, ascending, over which `attn.out` is the softmax's mean.
struct AttnProgressiveArgs {
  AttnPagedArgs attn;  // n_tok is 1; select, n_select, q_sink, lse and carry are null, window is 0, no list_per_head
  uint32_t* select;    // in/out [n_kv_heads, capacity] table rows, in: ascending; the end of a list is overwritten
  uint32_t* n_select;  // in/out [n_kv_heads], at least 1
  AttnStop stop;
  // Null: all listed pages are in the pool. Otherwise pages that it drops are neither attended nor listed; they count
  // as left, but not in sums of bounds.
  PageSource* source = nullptr;
};

}  // namespace weir
