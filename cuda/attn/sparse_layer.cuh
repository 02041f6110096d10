// A sparse layer of a decode step in one launch: rotation of the query, appending, estimates of all pages, top-k page
// selection, recall, attention over the selected pages.
#pragma once

#include "cuda/attn/attn_decode.cuh"
#include "cuda/pages/page_recall.cuh"

namespace weir::cuda {

// The arguments of page_select and attn_decode (with append). Of `select` the kernel reads flags, agg, budget and
// n_sink_pages and writes group_score. With recall also those of page_recall, without lists and entries. The estimates
// and the lists stay inside the kernel.
struct SparseLayerArgs {
  AttnDecodeArgs attn;
  PageSelectArgs select;
  AttnStop stop = {};          // rank and flags are not read: the kernel has them; bound is null
  PageRecallArgs recall = {};  // without tables: nothing comes back
};

// Whether the device has a kernel for these arguments. If not, three launches do the layer, with recall five.
bool has_sparse_layer(const SparseLayerArgs& a);

// The kernel reads tables, digests of all rows but the last, flags, *n_tokens, and rope's rotations, norms and append
// rows before the previous kernel has ended; with recall also stamps, which pages are in the pool, recall.raw_index,
// recall.heads and whether the step is late. They must have been written by kernels before the previous one, which must
// call start_next() after its own wait_for_previous().
Status sparse_layer(OpContext& cx, const SparseLayerArgs& a);

}  // namespace weir::cuda
