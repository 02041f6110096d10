// Reference of experts, in f64 up to the logits, to what the gates give and to the result; and the choice of experts,
// which the CPU backend shares.
#include <cmath>
#include <limits>

#include "ops/dot_ref.h"
#include "ops/experts.h"
#include "ops/gate_ref.h"
#include "ops/table.h"

namespace weir {
namespace {

// The order in which experts are chosen: the larger logit, then the lower index.
struct Rank {
  float logit;
  uint32_t expert;
  bool before(const Rank& o) const { return logit > o.logit || (logit == o.logit && expert < o.expert); }
};

float rank_logit(float logit) { return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit; }

}  // namespace

void choose_experts(const float* logits, uint32_t n_experts, uint32_t n_used, RouteRule rule, uint32_t* ids,
                    float* weights) {
  Rank last = {std::numeric_limits<float>::infinity(), 0};
  float most = 0.0f;
  for (uint32_t i = 0; i < n_used; ++i) {
    Rank best = {0.0f, n_experts};
    for (uint32_t e = 0; e < n_experts; ++e) {
      const Rank rank = {rank_logit(logits[e]), e};
      if ((i == 0 || last.before(rank)) && (best.expert == n_experts || rank.before(best))) best = rank;
    }
    last = best;
    if (i == 0) most = best.logit;
    uint32_t at = i;  // in ascending order of the index
    for (; at > 0 && ids[at - 1] > best.expert; --at) ids[at] = ids[at - 1];
    ids[at] = best.expert;
  }
  const auto share = [&](uint32_t e) { return std::exp(double{logits[e]} - double{most}); };
  double sum = 0.0;
  for (uint32_t i = 0; i < (rule == RouteRule::kAll ? n_experts : n_used); ++i)
    sum += share(rule == RouteRule::kAll ? i : ids[i]);
  for (uint32_t i = 0; i < n_used; ++i) weights[i] = static_cast<float>(share(ids[i]) / sum);
}

namespace ref {
namespace {

// What the gate of a network makes of x: out [gate.n_rows].
void glu(const Weight& gate, const float* gate_bias, const Weight& up, const float* up_bias, Gate activation,
         const float* x, float* out) {
  for (size_t r = 0; r < gate.n_rows; ++r) {
    const double g = dot_row(gate, r, x) + (gate_bias != nullptr ? double{gate_bias[r]} : 0.0);
    const double u = dot_row(up, r, x) + (up_bias != nullptr ? double{up_bias[r]} : 0.0);
    out[r] = static_cast<float>(gated(activation, g, u));
  }
}

const float* bias_of(const ExpertStack& stack, uint32_t n_experts, uint32_t expert) {
  return stack.bias == nullptr ? nullptr : stack.bias + size_t{expert} * (stack.w.n_rows / n_experts);
}

double dot(const float* a, const float* b, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

void one_token(const ExpertsArgs& a, const float* x, float* y, float* logits, uint32_t* ids, float* weights,
               float* inner) {
  const size_t d = a.gate.w.n_cols, d_ff = a.down.w.n_cols;
  for (size_t e = 0; e < a.n_experts; ++e) {
    const double bias = a.router_bias != nullptr ? double{a.router_bias[e]} : 0.0;
    logits[e] = static_cast<float>(dot(a.router + e * d, x, d) + bias);
  }
  choose_experts(logits, a.n_experts, a.n_used, a.rule, ids, weights);
  for (size_t i = 0; i < a.n_used; ++i) {
    glu(expert_of(a.gate.w, a.n_experts, ids[i]), bias_of(a.gate, a.n_experts, ids[i]),
        expert_of(a.up.w, a.n_experts, ids[i]), bias_of(a.up, a.n_experts, ids[i]), a.activation, x, inner + i * d_ff);
  }
  float* shared_inner = inner + a.n_used * d_ff;
  double shared = 0.0;
  if (a.shared_router != nullptr) {
    glu(a.shared_gate, nullptr, a.shared_up, nullptr, a.activation, x, shared_inner);
    shared = 1.0 / (1.0 + std::exp(-dot(a.shared_router, x, d)));
  }
  for (size_t r = 0; r < d; ++r) {
    double sum = y[r];
    for (size_t i = 0; i < a.n_used; ++i) {
      const float* bias = bias_of(a.down, a.n_experts, ids[i]);
      sum += double{weights[i]} *
             (dot_row(a.down.w, ids[i] * d + r, inner + i * d_ff) + (bias != nullptr ? double{bias[r]} : 0.0));
    }
    if (a.shared_router != nullptr) sum += shared * dot_row(a.shared_down, r, shared_inner);
    y[r] = static_cast<float>(sum);
  }
}

}  // namespace

uint64_t experts_scratch_bytes(const OpShapes& s) {
  const uint64_t n =
      uint64_t{s.n_experts} + 2 * s.n_experts_used + uint64_t{s.n_experts_used} * s.expert_ff + s.shared_ff;
  return n * sizeof(float);
}

Status experts(OpContext& cx, const ExpertsArgs& a) {
  const uint32_t shared_ff = a.shared_router != nullptr ? a.shared_gate.n_rows : 0;
  OpShapes shapes;
  shapes.n_experts = a.n_experts;
  shapes.n_experts_used = a.n_used;
  shapes.expert_ff = a.down.w.n_cols;
  shapes.shared_ff = shared_ff;
  if (experts_scratch_bytes(shapes) > cx.scratch_bytes) return fail(WEIR_ERR_INTERNAL, "experts: too little scratch");
  auto* logits = reinterpret_cast<float*>(cx.scratch);
  auto* ids = reinterpret_cast<uint32_t*>(logits + a.n_experts);
  auto* weights = reinterpret_cast<float*>(ids + a.n_used);
  const size_t d = a.gate.w.n_cols;
  for (size_t t = 0; t < a.n_tok; ++t) one_token(a, a.x + t * d, a.y + t * d, logits, ids, weights, weights + a.n_used);
  return {};
}

}  // namespace ref
}  // namespace weir
