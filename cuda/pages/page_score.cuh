// Page estimates of a decode step from the query as the QKV GEMV left it, so that they need not wait for rope_append.
#pragma once

#include "cuda/ops.h"

namespace weir::cuda {

// page_score with an op.q that is neither normalised nor rotated. The kernel does both, as rope.q_norm, rope.norm_eps,
// rope.cos_sin, rope.rope_dim and rope.layout say, and does not write the result to memory. The last row, the open
// page, gets -inf: page_select does not read its estimate.
// Numerics: with kMinMax and kCuboidMean the first half of a digest must not be below the second, as digest_page makes
// them.
// Assumes: the kernel reads tables, digests of all rows but the last, and rope's weights and rotations before the
// previous kernel has ended. They must have been written by kernels before the previous one, which must call
// start_next() after its own wait_for_previous().
struct PageScoreStepArgs {
  PageScoreArgs op;
  RopeAppendArgs rope;
  bool overlap = true;  // see launch()
};
Status page_score_step(OpContext& cx, const PageScoreStepArgs& a);

// What page_score_step supports; everything else goes through rope_append and page_score.
constexpr bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t group) {
  return kind != DigestKind::kNone && kind != DigestKind::kSphereMean && (head_dim == 64 || head_dim == 128) &&
         group <= 16;
}

}  // namespace weir::cuda
