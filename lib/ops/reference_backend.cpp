// The reference backend's op table: every operation in plain C++ on the calling thread. Tests compare other backends
// with it; it is never fast.
#include "ops/ops.h"
#include "weir/runtime.h"

namespace weir {

const Backend& reference_backend() {
  static constexpr Backend kBackend = {
      "reference",
      WEIR_DEVICE_CPU,
      {
#define WEIR_OP(name, Args) ref::name,
#include "ops/ops.inc"
#undef WEIR_OP
      },
      [](const OpShapes&) -> uint64_t { return 0; },
      []() { return "plain C++"; },
      TraitSet(Trait::kQkvBias, Trait::kQkNorm, Trait::kPostNorm, Trait::kGeluGate, Trait::kEmbeddingScale,
               Trait::kWindow, Trait::kLayerRope, Trait::kAttnSoftCap, Trait::kLogitSoftCap, Trait::kAttnSinks),
  };
  return kBackend;
}

}  // namespace weir
