// Estimates of a decode step from the query as the product left it, so that they need not wait for rope_append.
#pragma once

#include "cuda/ops.h"

namespace weir::cuda {

// page_score whose op.q is not yet normed and rotated: the kernel does both as rope.q_norm, rope.norm_eps, rope.cos_sin, rope.rope_dim and
// rope.layout say, and keeps the result to itself. The last row, the open page, gets -inf: page_select does not read it. Numerics: with kMinMax and
// kCuboidMean the digests' first half must be no less than the second, as digest_page makes them.
// Tables, digests of all rows but the last, and rope's weights and rotations are read before the previous kernel has ended: they must come from kernels
// before that one, and it must call start_next() after its own wait_for_previous().
struct PageScoreStepArgs {
  PageScoreArgs op;
  RopeAppendArgs rope;
  bool overlap = true;  // see launch()
};
Status page_score_step(OpContext& cx, const PageScoreStepArgs& a);

// What page_score_step reads; for the rest there are rope_append and page_score.
constexpr bool has_page_score_step(DigestKind kind, uint32_t head_dim, uint32_t group) {
  return kind != DigestKind::kNone && kind != DigestKind::kSphereMean && (head_dim == 64 || head_dim == 128) &&
         group <= 16;
}

}  // namespace weir::cuda
