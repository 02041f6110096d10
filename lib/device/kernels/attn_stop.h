// The kernel attn_stop.
#pragma once

#include <cstdint>

#include "device/kernels/attn_decode.h"
#include "ops/attn_stop.h"

namespace weir::device {

// attn_decode over all pages, the most important ones first, until enough was seen (AttnStop); streams with windows of
// their own (head_windows) are attended whole. In `attn` no list and no observation, and append only where
// attn_stop_appends; `stop` has rank, flags and, if it stops by bounds, the estimates of every head. Adds the pages
// that were attended to pages_attended.
struct AttnStopArgs {
  AttnDecodeArgs attn;
  AttnStop stop;
  uint32_t max_pages;  // of a stream, the forced ones included, which are all taken even if they are more
  // The lists of the pages that are attended, [n_kv_heads, capacity] and [n_kv_heads]: written where there are masses,
  // which are in their order, and otherwise if the device needs them.
  uint32_t* select;
  uint32_t* n_select;
};

}  // namespace weir::device
