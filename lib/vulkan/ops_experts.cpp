// Mixture of experts: the router's logits, the choice, the gates of the chosen, and what they add up to.
#include <cstddef>

#include "core/memory.h"
#include "device/kernels/gemv.h"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/matmul.h"
#include "ops/table.h"
#include "vulkan/gemm.h"
#include "vulkan/ops.h"
#include "vulkan/ops_sizes.h"

namespace weir::vulkan {
namespace {

static_assert(kMaxRouted >= kMaxExperts && kMaxRoutedGroups >= kMaxExpertGroups);

// The parts of the scratch memory, in order; bytes are 0 where nothing is.
struct Scratch {
  float* logits;        // [n_tok, n_experts]
  uint32_t* ids;        // [n_tok, n_used]
  float* weights;       // [n_tok, n_used]
  float* inner;         // [n_tok, n_used, expert_ff]
  float* shared_gates;  // [n_tok] logits
  float* shared_inner;  // [n_tok, shared_ff]
  uint64_t bytes;
};

Scratch lay_out(std::byte* base, uint64_t n_tok, const OpShapes& s) {
  Scratch scratch = {};
  uint64_t at = 0;
  const auto take = [&](uint64_t n) {
    std::byte* const p = base + at;
    at = align_up(at + n_tok * n * sizeof(float), Memory::kAlignment);
    return reinterpret_cast<float*>(p);
  };
  scratch.logits = take(s.n_experts);
  scratch.ids = reinterpret_cast<uint32_t*>(take(s.n_experts_used));
  scratch.weights = take(s.n_experts_used);
  scratch.inner = take(uint64_t{s.n_experts_used} * s.expert_ff);
  scratch.shared_gates = take(s.shared_ff != 0 ? 1 : 0);
  scratch.shared_inner = take(s.shared_ff);
  scratch.bytes = at;
  return scratch;
}

// A row or more of f32 as a matrix.
Weight f32_matrix(const float* values, uint32_t n_rows, uint32_t n_cols) {
  return {reinterpret_cast<const uint8_t*>(values), WeightType::kF32, n_rows, n_cols, n_cols * sizeof(float)};
}

Status check_experts(const ExpertsArgs& a) {
  for (const Weight* w : {&a.gate.w, &a.up.w, &a.down.w}) WEIR_TRY(check_weight(*w));
  if (a.router.n_experts > kMaxExperts) return fail(WEIR_ERR_INTERNAL, "Vulkan: %u experts", a.router.n_experts);
  if (a.gate.w.type == a.up.w.type) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: experts' gates of %s and up matrices of %s; one type is needed",
              weight_type_info(a.gate.w.type).name, weight_type_info(a.up.w.type).name);
}

// Logits that decide, in f32 on every device.
Status logits(OpContext& cx, const ExpertsArgs& a, const MatmulPart& part) {
  return a.n_tok > kMaxColumns ? gemm_f32(part, a.x, a.n_tok) : gated_matmul(cx, part, a.x, nullptr, a.n_tok);
}

Status route(OpContext& cx, const ExpertsArgs& a, const Scratch& s) {
  const Router& r = a.router;
  const bool is_softmax = r.rule.score == RouteRule::Score::kSoftmax;
  WEIR_TRY(logits(cx, a, {f32_matrix(r.w, r.n_experts, a.d_model()), r.bias, s.logits, false}));
  Touches t;
  const RoutePush push = {.ids = t.writes(s.ids, float_bytes(uint64_t{a.n_tok} * r.n_used)),
                          .weights = t.writes(s.weights, float_bytes(uint64_t{a.n_tok} * r.n_used)),
                          .logits = t.reads(s.logits, float_bytes(uint64_t{a.n_tok} * r.n_experts)),
                          .choice_bias = t.reads(r.choice_bias, float_bytes(r.n_experts)),
                          .n_experts = r.n_experts,
                          .n_used = r.n_used,
                          .n_groups = r.rule.n_groups,
                          .n_groups_used = r.rule.n_groups_used,
                          .flags = (is_softmax ? kRouteSoftmax : 0u) | (r.rule.normalise ? kRouteNormalise : 0u) |
                                   (r.by_logits() ? kRouteByLogits : 0u),
                          .scale = r.rule.scale,
                          .least = kTinySum};
  return context().dispatch(Kernel::kRoute, WeightType::kF32, {1}, push, t, {a.n_tok});
}

Status gates(const ExpertsArgs& a, const Scratch& s) {
  const Weight& w = a.gate.w;
  const uint32_t n_rows = w.n_rows / a.router.n_experts;
  Touches t;
  const ExpertGluPush push = {.inner = t.writes(s.inner, float_bytes(uint64_t{a.n_tok} * a.router.n_used * n_rows)),
                              .x = t.reads(a.x, float_bytes(uint64_t{a.n_tok} * w.n_cols)),
                              .gate = t.reads(w.data, weight_bytes(w)),
                              .up = t.reads(a.up.w.data, weight_bytes(a.up.w)),
                              .gate_bias = t.reads(a.gate.bias, float_bytes(w.n_rows)),
                              .up_bias = t.reads(a.up.bias, float_bytes(w.n_rows)),
                              .ids = t.reads(s.ids, float_bytes(uint64_t{a.n_tok} * a.router.n_used)),
                              .n = blocks_of(w),
                              .n_blocks = row_blocks_of(w),
                              .n_rows = n_rows,
                              .n_tok = a.n_tok,
                              .n_used = a.router.n_used,
                              .activation = static_cast<uint>(a.activation)};
  return context().dispatch(Kernel::kExpertGlu, w.type, {1}, push, t,
                            {groups_for(n_rows), std::min(a.n_tok * a.router.n_used, kMaxGroups)});
}

Status down(const ExpertsArgs& a, const Scratch& s) {
  const Weight& w = a.down.w;
  const uint32_t n_rows = w.n_rows / a.router.n_experts;
  Touches t;
  const ExpertDownPush push = {.y = t.writes(a.y, float_bytes(uint64_t{a.n_tok} * n_rows)),
                               .inner = t.reads(s.inner, float_bytes(uint64_t{a.n_tok} * a.router.n_used * w.n_cols)),
                               .w = t.reads(w.data, weight_bytes(w)),
                               .bias = t.reads(a.down.bias, float_bytes(w.n_rows)),
                               .ids = t.reads(s.ids, float_bytes(uint64_t{a.n_tok} * a.router.n_used)),
                               .weights = t.reads(s.weights, float_bytes(uint64_t{a.n_tok} * a.router.n_used)),
                               .n = blocks_of(w),
                               .n_blocks = row_blocks_of(w),
                               .n_rows = n_rows,
                               .n_tok = a.n_tok,
                               .n_used = a.router.n_used};
  return context().dispatch(Kernel::kExpertDown, w.type, {1}, push, t,
                            {groups_for((n_rows + 1) / 2), std::min(a.n_tok, kMaxGroups)});
}

Status shared_expert(OpContext& cx, const ExpertsArgs& a, const Scratch& s) {
  const float* gates = a.shared_router != nullptr ? s.shared_gates : nullptr;
  if (gates != nullptr)
    WEIR_TRY(logits(cx, a, {f32_matrix(a.shared_router, 1, a.d_model()), nullptr, s.shared_gates, false}));
  WEIR_TRY(glu_matmul(cx, {s.shared_inner, a.shared_gate, a.shared_up, a.x, a.n_tok, a.activation}));
  return gated_matmul(cx, {a.shared_down, nullptr, a.y, true}, s.shared_inner, gates, a.n_tok);
}

}  // namespace

uint64_t experts_scratch_bytes(const OpShapes& s) {
  if (s.n_experts == 0) return 0;
  return lay_out(nullptr, s.max_tok, s).bytes + (s.shared_ff != 0 ? gemm_scratch_bytes(s) : 0);
}

Status experts(OpContext& cx, const ExpertsArgs& a) {
  WEIR_TRY(check_experts(a));
  if (a.n_tok == 0) return {};
  if (a.n_tok > kMaxGroups) return fail(WEIR_ERR_UNSUPPORTED, "Vulkan: experts for %u tokens", a.n_tok);
  OpShapes shapes;
  shapes.n_experts = a.router.n_experts;
  shapes.n_experts_used = a.router.n_used;
  shapes.expert_ff = a.d_ff();
  shapes.shared_ff = a.shared_ff();
  const Scratch s = lay_out(cx.scratch, a.n_tok, shapes);
  if (s.bytes > cx.scratch_bytes) return fail(WEIR_ERR_INTERNAL, "Vulkan: experts: too little scratch memory");
  WEIR_TRY(route(cx, a, s));
  WEIR_TRY(gates(a, s));
  WEIR_TRY(down(a, s));
  if (a.shared_ff() == 0) return {};
  OpContext rest = cx;
  rest.scratch += s.bytes;
  rest.scratch_bytes -= s.bytes;
  return shared_expert(rest, a, s);
}

}  // namespace weir::vulkan
