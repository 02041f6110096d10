// A sparse layer of a decode step in one launch: rotation of the query, appending, estimates of all pages, top-k page
// selection, recall, attention over the selected pages.
#pragma once

#include "cuda/attn/attn_decode.cuh"
#include "cuda/pages/page_recall.cuh"
#include "device/kernels.h"

namespace weir::cuda {

using device::SparseLayerArgs;

// Whether the device has a kernel for these arguments. If not, three launches do the layer, with recall five.
bool has_sparse_layer(const SparseLayerArgs& a);

// The kernel reads tables, digests of all rows but the last, flags, *n_tokens, and rope's rotations, norms and append
// rows before the previous kernel has ended; with recall also stamps, which pages are in the pool, recall.raw_index,
// recall.heads and whether the step is late. They must have been written by kernels before the previous one, which must
// call start_next() after its own wait_for_previous().
Status sparse_layer(OpContext& cx, const SparseLayerArgs& a);

}  // namespace weir::cuda
