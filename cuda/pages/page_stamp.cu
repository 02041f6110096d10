// Computes: page_stamp.
// Launch: one block per KV head.
// Numerics: as the reference, bit for bit.
// Traffic: the weights once.
// Paper: as lib/ops/page_stamp_ref.cpp.
#include "cuda/pages/page_stamp.cuh"

#include "cuda/ops.h"
#include "cuda/step/step.cuh"
#include "ops/page_stamp.h"

namespace weir::cuda {
namespace {

constexpr uint32_t kBlock = 256;

__global__ void __launch_bounds__(kBlock) page_stamp_kernel(PageStampArgs a, const StepState* state) {
  __shared__ StampScratch scratch;
  start_next();
  wait_for_previous();
  if (state != nullptr) {
    if (state->is_late != 0) return;
    a.now = state->n_tokens + 1;
  }
  stamp_stream(a, blockIdx.x, scratch);
}

}  // namespace

Status page_stamp_at(OpContext& cx, const PageStampArgs& a, const StepState* state) {
  return launch("page_stamp", page_stamp_kernel, a.n_kv_heads, kBlock, 0, stream_of(cx), true, a, state);
}

Status page_stamp(OpContext& cx, const PageStampArgs& a) { return page_stamp_at(cx, a, nullptr); }

}  // namespace weir::cuda
