// Page estimates of a decode step from the query as the QKV GEMV left it, so that they need not wait for rope_append.
#pragma once

#include "cuda/ops.h"
#include "device/kernels.h"

namespace weir::cuda {

using device::PageScoreStepArgs;

// The kernel reads tables, digests of all rows but the last, and rope's weights and rotations before the
// previous kernel has ended. They must have been written by kernels before the previous one, which must call
// start_next() after its own wait_for_previous().
Status page_score_step(OpContext& cx, const PageScoreStepArgs& a);

// What page_score_step supports; everything else goes through rope_append and page_score.
constexpr bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t group) {
  return kind != DigestKind::kNone && kind != DigestKind::kSphereMean && kind != DigestKind::kSketch &&
         (head_dim == 64 || head_dim == 128) && group <= 16;
}

}  // namespace weir::cuda
