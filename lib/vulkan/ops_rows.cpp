// The ops over rows of activations.
#include <algorithm>

#include "ops/rms_norm.h"
#include "ops/soft_cap.h"
#include "ops/temper.h"
#include "vulkan/context.h"
#include "vulkan/ops.h"

namespace weir::vulkan {

Status rms_norm(OpContext&, const RmsNormArgs& a) {
  if (a.n_tok > kMaxGroups) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: rms_norm of %u rows", a.n_tok);
  if (a.n_tok == 0) return {};
  const uint64_t bytes = uint64_t{a.n_tok} * a.n * sizeof(float);
  Touches t;
  const RmsNormPush push = {
      t.writes(a.y, bytes),  t.reads(a.x, bytes), t.reads(a.weight, uint64_t{a.n} * sizeof(float)), a.n, a.eps,
      a.accumulate ? 1u : 0u};
  return context().dispatch(Kernel::kRmsNorm, WeightType::kF32, {1}, push, t, {a.n_tok});
}

Status soft_cap(OpContext&, const SoftCapArgs& a) {
  if (a.n == 0) return {};
  Touches t;
  const SoftCapPush push = {t.writes(a.x, uint64_t{a.n} * sizeof(float)), a.n, a.cap};
  return context().dispatch(Kernel::kSoftCap, WeightType::kF32, {1}, push, t,
                            {std::min((a.n + kInvocations - 1) / kInvocations, kMaxGroups)});
}

Status temper(OpContext&, const TemperArgs& a) {
  if (a.n_tok == 0) return {};
  Touches t;
  const TemperPush push = {.q = t.writes(a.q, uint64_t{a.n_tok} * a.width * sizeof(float)),
                           .pos_at = t.reads(a.pos_at, sizeof(uint32_t)),
                           .n_tok = a.n_tok,
                           .width = a.width,
                           .pos = a.pos,
                           .n_tokens = a.temperature.n_tokens,
                           .beta = a.temperature.beta};
  return context().dispatch(Kernel::kTemper, WeightType::kF32, {1}, push, t, {std::min(a.n_tok, kMaxGroups)});
}

}  // namespace weir::vulkan
