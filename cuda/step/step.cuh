// The kernels that begin and end a decode step, beside the ops.
#pragma once

#include "cuda/ops.h"
#include "device/kernels.h"
#include "kv/step_state.h"

namespace weir::cuda {

using device::FillNoiseArgs;
using device::MoveOpenPageArgs;
using device::RotateHeadsArgs;
using device::StepEndArgs;

Status step_end(OpContext& cx, const StepEndArgs& a);

// rope_append whose position is in device memory. `overlap`: see launch().
Status rope_append_at(OpContext& cx, const RopeAppendArgs& a, const uint32_t* n_tokens, bool overlap);

// page_stamp in the step that `state` is about; nothing if it is late.
Status page_stamp_at(OpContext& cx, const PageStampArgs& a, const StepState* state);

// Rebuilds the kMinMax digest of the last page of every stream, however full it is.
Status rebuild_last_minmax(OpContext& cx, const KvView& kv);

// Fills the pool with values in [-1, 1), for benchmarks.
Status fill_noise(OpContext& cx, const FillNoiseArgs& a);

Status move_open_page(OpContext& cx, const MoveOpenPageArgs& a);

// Rotates rows of heads, as rotate_rows of ops/hadamard.h does.
Status rotate_heads(OpContext& cx, const RotateHeadsArgs& a);

}  // namespace weir::cuda
