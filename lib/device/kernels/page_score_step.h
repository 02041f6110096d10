// The kernel page_score_step.
#pragma once

#include "ops/page_score.h"
#include "ops/rope_append.h"

namespace weir::device {

// page_score with an op.q that is neither normalised nor rotated. The kernel does both, as rope.q_norm, rope.norm_eps,
// rope.cos_sin, rope.rope_dim and rope.layout say, and does not write the result to memory. The last row, the open
// page, gets -inf: page_select does not read its estimate.
// Numerics: with kMinMax and kCuboidMean the first half of a digest must not be below the second, as digest_page makes
// them.
struct PageScoreStepArgs {
  PageScoreArgs op;
  RopeAppendArgs rope;
  bool overlap = true;
};

}  // namespace weir::device
