// The ops over weight matrices. Up to kMaxColumns rows of x are multiplied by a subgroup for each row of the matrix:
// what a session decodes must not depend on those beside it. More rows, of prompts, are multiplied in tiles.
#include <algorithm>

#include "device/kernels/gemv.h"
#include "ops/embed.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "quant/planes.h"
#include "vulkan/context.h"
#include "vulkan/gemm.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

static_assert(static_cast<uint>(Gate::kSilu) == kGateSilu && static_cast<uint>(Gate::kGelu) == kGateGelu &&
              static_cast<uint>(Gate::kClamped) == kGateClamped && static_cast<uint>(Gate::kRelu) == kGateRelu);

// Shaders index a matrix by 32-bit numbers of words.
constexpr uint64_t kMaxMatrixBytes = uint64_t{1} << 33;

}  // namespace

Status check_weight(const Weight& w) {
  WEIR_TRY(check_planes(w));
  const uint64_t most = std::min(kMaxMatrixBytes, context().device.max_allocated());
  if (weight_bytes(w) <= most) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "a matrix of %llu bytes: this device takes at most %llu",
              static_cast<unsigned long long>(weight_bytes(w)), static_cast<unsigned long long>(most));
}

Status embed(OpContext&, const EmbedArgs& a) {
  WEIR_TRY(check_weight(a.table));
  if (a.n_tok == 0) return {};
  const uint32_t n_blocks = row_blocks_of(a.table), groups = 4 * n_blocks;
  Touches t;
  const EmbedPush push = {t.writes(a.x, float_bytes(uint64_t{a.n_tok} * a.table.n_cols)),
                          t.reads(a.table.data, weight_bytes(a.table)),
                          t.reads(a.tokens, a.n_tok * sizeof(int32_t)),
                          blocks_of(a.table),
                          n_blocks,
                          a.n_tok,
                          a.scale};
  return context().dispatch(Kernel::kEmbed, a.table.type, {1}, push, t,
                            {(groups + kInvocations - 1) / kInvocations, std::min(a.n_tok, kMaxGroups)});
}

Status gated_matmul(OpContext& cx, const MatmulPart& part, const float* x, const float* gates, uint32_t n_tok) {
  const Weight& w = part.w;
  WEIR_TRY(check_weight(w));
  if (n_tok > kMaxColumns) return gemm(cx, {{part, {}, {}}, 1, x, n_tok}, gates);
  Touches t;
  const GemvPush push = {.y = t.writes(part.y, float_bytes(uint64_t{n_tok} * w.n_rows)),
                         .x = t.reads(x, float_bytes(uint64_t{n_tok} * w.n_cols)),
                         .w = t.reads(w.data, weight_bytes(w)),
                         .bias = t.reads(part.bias, float_bytes(w.n_rows)),
                         .gates = t.reads(gates, float_bytes(n_tok)),
                         .n = blocks_of(w),
                         .n_blocks = row_blocks_of(w),
                         .n_rows = w.n_rows,
                         .n_tok = n_tok,
                         .accumulate = part.accumulate ? 1u : 0u};
  return context().dispatch(Kernel::kGemv, w.type, {columns_for(n_tok)}, push, t, grid_of((w.n_rows + 1) / 2, n_tok));
}

Status matmul(OpContext& cx, const MatmulArgs& a) {
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(check_weight(a.part[i].w));
  if (a.n_tok == 0) return {};
  if (a.n_tok > kMaxColumns) return gemm(cx, a, nullptr);
  for (uint32_t i = 0; i < a.n_parts; ++i) WEIR_TRY(gated_matmul(cx, a.part[i], a.x, nullptr, a.n_tok));
  return {};
}

Status glu_matmul(OpContext& cx, const GluMatmulArgs& a) {
  WEIR_TRY(check_weight(a.gate));
  WEIR_TRY(check_weight(a.up));
  if (a.gate.type != a.up.type) {
    return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: a gate of %s and an up matrix of %s; one type is needed",
                weight_type_info(a.gate.type).name, weight_type_info(a.up.type).name);
  }
  if (a.n_tok == 0) return {};
  if (a.n_tok > kMaxColumns) return gemm_glu(cx, a);
  Touches t;
  const GluPush push = {.y = t.writes(a.y, float_bytes(uint64_t{a.n_tok} * a.gate.n_rows)),
                        .x = t.reads(a.x, float_bytes(uint64_t{a.n_tok} * a.gate.n_cols)),
                        .gate = t.reads(a.gate.data, weight_bytes(a.gate)),
                        .up = t.reads(a.up.data, weight_bytes(a.up)),
                        .gate_bias = t.reads(a.gate_bias, float_bytes(a.gate.n_rows)),
                        .up_bias = t.reads(a.up_bias, float_bytes(a.up.n_rows)),
                        .n = blocks_of(a.gate),
                        .n_blocks = row_blocks_of(a.gate),
                        .n_rows = a.gate.n_rows,
                        .n_tok = a.n_tok,
                        .activation = static_cast<uint>(a.activation)};
  return context().dispatch(Kernel::kGlu, a.gate.type, {columns_for(a.n_tok)}, push, t,
                            grid_of(a.gate.n_rows, a.n_tok));
}

}  // namespace weir::vulkan
