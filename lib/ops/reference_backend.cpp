// The reference backend's op table: every operation in plain C++ on the calling thread. Tests compare other backends
// with it; it is never fast.
#include <algorithm>

#include "ops/history_lists_ref.h"
#include "ops/table.h"
#include "weir/runtime.h"

namespace weir {
namespace ref {
uint64_t experts_scratch_bytes(const OpShapes& shapes);
uint64_t token_choice_bytes(uint64_t pages);

static uint64_t scratch_bytes(const OpShapes& s) {
  const uint64_t group = s.n_kv_heads != 0 ? s.n_heads / s.n_kv_heads : 0;
  const uint64_t recurrent = (uint64_t{s.conv_channels} + s.recurrent_width) * sizeof(double);
  return std::max({experts_scratch_bytes(s), history_scratch_bytes(s.history_tokens, group, s.head_dim), recurrent,
                   token_choice_bytes(s.token_pages)});
}
}  // namespace ref

const Backend& reference_backend() {
  static constexpr Backend kBackend = {
      "reference",
      WEIR_DEVICE_CPU,
      {
#define WEIR_OP(name, Args) ref::name,
#include "ops/ops.inc"
#undef WEIR_OP
      },
      ref::scratch_bytes,
      []() { return "plain C++"; },
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
