// Attention of one layer in one session: what Stage::Kind::kAttend is. The arguments of its two ops are made here for every backend.
#pragma once

#include "core/status.h"
#include "models/decoder.h"
#include "models/layer.h"
#include "ops/ops.h"
#include "ops/step_rules.h"

namespace weir {

// What a pass over some tokens of one session attends with. Positions are those that the pages have when the pass begins.
struct AttendPass {
  const ModelConfig& config;
  const RopeTable& rope;
  const KvCache& kv;
  const StepBuffers& b;
  const AttnScope& scope;  // the policy's
  uint32_t n_tok = 0;
  uint32_t pos = 0;  // of the first token
};

// Rotation of q and k, and k and v to their pages. Rows of activations are those of `b`.
RopeAppendArgs rope_append_args(const AttendPass& pass, const Attention& attention, uint32_t layer);
// Attention over all resident pages, without masses and sums. Rows of activations are those of `b`.
AttnPagedArgs attn_paged_args(const AttendPass& pass, const Attention& attention, uint32_t layer);

// Whether pages were filled, by `n_tok` tokens from position `pos` on, whose digests are made when a page is full.
bool digests_are_due(DigestKind digest, uint32_t pos, uint32_t n_tok);

// Runs the stage for the session of `step`, whose rows of q, k, v and o are row `row` of the buffers `b` and those behind it.
Status attend(Step& step, const StepBuffers& b, uint32_t row, uint32_t layer);

}  // namespace weir
