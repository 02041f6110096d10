// Attention with stamping, defined: one op after the other.
// Paper: Hu et al., "RaaS: Reasoning-Aware Attention Sparsity for Efficient LLM Reasoning", arXiv:2502.11147 (v1), sec.
// 3.2.
#include "ops/attn_stamp.h"
#include "ops/table.h"

namespace weir::ref {

Status attn_stamp(OpContext& cx, const AttnStampArgs& a) {
  const Status status = attn_paged(cx, a.attn);
  return status.ok() ? page_stamp(cx, a.stamp) : status;
}

}  // namespace weir::ref
