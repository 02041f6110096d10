// The kernel sparse_layer.
#pragma once

#include "device/kernels/attn_decode.h"
#include "device/kernels/page_recall.h"
#include "ops/attn_stop.h"
#include "ops/page_select.h"

namespace weir::device {

// A sparse layer of a decode step in one launch: rotation of the query, appending, estimates of all pages, top-k page
// selection, recall, attention over the selected pages.
// The arguments of page_select and attn_decode (with append). Of `select` the kernel reads flags, agg, scale, budget
// and n_sink_pages, and writes group_score. With recall also those of page_recall, without lists and entries. The
// estimates and the lists stay inside the kernel.
struct SparseLayerArgs {
  AttnDecodeArgs attn;
  PageSelectArgs select;
  AttnStop stop = {};          // rank and flags are not read: the kernel has them; bound is null
  PageRecallArgs recall = {};  // without tables: nothing comes back
};

}  // namespace weir::device
