// The op table of the CPU backend. Ops run one after another and share one scratch block, each from its start.
#include <algorithm>

#include "cpu/attn_history.h"
#include "cpu/attn_paged.h"
#include "cpu/attn_progressive.h"
#include "cpu/attn_tokens.h"
#include "cpu/backend.h"
#include "cpu/delta_net.h"
#include "cpu/experts.h"
#include "cpu/head_gate.h"
#include "cpu/mamba2.h"
#include "cpu/matmul.h"
#include "cpu/page_accumulate.h"
#include "cpu/page_digest.h"
#include "cpu/page_score.h"
#include "cpu/page_select.h"
#include "cpu/page_sketch.h"
#include "cpu/page_stamp.h"
#include "cpu/rms_norm.h"
#include "cpu/rope_append.h"
#include "cpu/short_conv.h"
#include "cpu/soft_cap.h"
#include "cpu/temper.h"
#include "cpu/token_mass.h"
#include "ops/attn_stamp.h"
#include "ops/table.h"
#include "weir/runtime.h"

namespace weir {
namespace cpu {

// Fusing the two ops would gain nothing here: the masses are in L1.
static Status attn_stamp(OpContext& cx, const AttnStampArgs& a) {
  const Status status = attn_paged(cx, a.attn);
  return status.ok() ? page_stamp(cx, a.stamp) : status;
}

}  // namespace cpu
namespace {

uint64_t scratch_bytes(const OpShapes& shapes) {
  return std::max({cpu::matmul_scratch_bytes(shapes), cpu::attn_scratch_bytes(shapes),
                   cpu::page_stamp_scratch_bytes(shapes), cpu::page_select_scratch_bytes(shapes),
                   cpu::token_mass_scratch_bytes(shapes), cpu::experts_scratch_bytes(shapes),
                   cpu::attn_progressive_scratch_bytes(shapes), cpu::attn_history_scratch_bytes(shapes),
                   cpu::attn_tokens_scratch_bytes(shapes), cpu::page_accumulate_scratch_bytes(shapes),
                   cpu::page_sketch_scratch_bytes(shapes)});
}

}  // namespace

const Backend& cpu_backend() {
  static constexpr Backend kBackend = {
      "cpu",
      WEIR_DEVICE_CPU,
      {
#define WEIR_OP(name, Args) cpu::name,
#include "ops/ops.inc"
#undef WEIR_OP
      },
      scratch_bytes,
      cpu::matmul_target,
      TraitSet(Trait::kQkvBias, Trait::kQkNorm, Trait::kPostNorm, Trait::kGeluGate, Trait::kEmbeddingScale,
               Trait::kWindow, Trait::kLayerRope, Trait::kAttnSoftCap, Trait::kLogitSoftCap, Trait::kTemperature,
               Trait::kAttnSinks, Trait::kOutBias, Trait::kGluBias, Trait::kClampedGate, Trait::kReluGate,
               Trait::kQkRowNorm, Trait::kNoNorm, Trait::kExperts, Trait::kHeadGate, Trait::kDeltaNet, Trait::kMamba2,
               Trait::kShortConv),
      RuleSet::all(),
      kAllKvFormats,
  };
  return kBackend;
}

}  // namespace weir
