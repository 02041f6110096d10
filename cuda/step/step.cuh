// The kernels that begin and end a decode step, beside the ops.
#pragma once

#include "cuda/ops.h"

namespace weir::cuda {

struct StepEndArgs {
  const float* logits;  // [vocab_size]
  uint32_t vocab_size;
  bool commit;          // whether the step's token counts, unless the step is late
  bool overlap = true;  // see launch()
  StepState* state;
  StepState* mailbox;        // host memory that the device writes to
  unsigned long long* best;  // zero before and after
  uint32_t* counter;         // zero before and after
};
Status step_end(OpContext& cx, const StepEndArgs& a);

// rope_append whose position is in device memory. `overlap`: see launch().
Status rope_append_at(OpContext& cx, const RopeAppendArgs& a, const uint32_t* n_tokens, bool overlap);

// page_stamp in the step that `state` is about; nothing if it is late.
Status page_stamp_at(OpContext& cx, const PageStampArgs& a, const StepState* state);

// Rebuilds the kMinMax digest of the last page of every stream, however full it is.
Status rebuild_last_minmax(OpContext& cx, const KvView& kv);

// Fills the pool with values in [-1, 1), for benchmarks.
Status fill_noise(OpContext& cx, uint16_t* pool, uint64_t n_elements, uint64_t seed);

}  // namespace weir::cuda
