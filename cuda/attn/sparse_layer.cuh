// A sparse layer of a decode step in one launch: rotation of the query, appending, estimates of all pages, choice of the best, attention over them.
#pragma once

#include "cuda/attn/attn_decode.cuh"

namespace weir::cuda {

// What page_select and attn_decode (with append) are given. Of `select` it reads flags, agg, budget and n_sink_pages and writes group_score; the
// estimates and the lists stay inside.
struct SparseLayerArgs {
  AttnDecodeArgs attn;
  PageSelectArgs select;
};

// Whether there is a kernel for these arguments on this device; else the three launches do it.
bool has_sparse_layer(const SparseLayerArgs& a);

// Tables, digests of all rows but the last, flags, *n_tokens, and rope's rotations, norms and rows are read before the previous kernel has ended: they must
// come from kernels before that one, and it must call start_next() after its own wait_for_previous().
Status sparse_layer(OpContext& cx, const SparseLayerArgs& a);

}  // namespace weir::cuda
