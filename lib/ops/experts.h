// The op experts: a mixture of experts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir {

// One matrix [n_rows, n_cols] per expert, one below the other, and their biases.
struct ExpertStack {
  Weight w;                     // [n_experts * n_rows, n_cols]
  const float* bias = nullptr;  // [n_experts, n_rows] or null
};

// Mixture of experts (docs/algorithms.md, "Mixture of experts"). Per token the n_used experts with the largest router
// logits are chosen, the lower index first of equals; NaN counts as -inf. Each is a gated feed-forward network, and
//   y += sum over the chosen of weight * (Wd (activation(Wg x (+ bias)) * (Wu x (+ bias))) (+ bias))
// plus, with a shared expert, sigmoid(shared_router . x) times the same of the shared matrices, which have no biases.
struct ExpertsArgs {
  float* y;        // in/out [n_tok, d_model]; not x
  const float* x;  // [n_tok, d_model]
  uint32_t n_tok;
  uint32_t n_experts, n_used;  // 1 <= n_used <= n_experts, at most kMaxExperts and kMaxExpertsUsed
  RouteRule rule;
  Gate activation;
  const float* router;                      // [n_experts, d_model]
  const float* router_bias;                 // [n_experts] or null
  ExpertStack gate, up;                     // d_ff rows, d_model columns
  ExpertStack down;                         // d_model rows, d_ff columns
  const float* shared_router = nullptr;     // [d_model]; null: no shared expert
  Weight shared_gate = {}, shared_up = {};  // [shared_ff, d_model]
  Weight shared_down = {};                  // [d_model, shared_ff]
};
inline constexpr uint32_t kMaxExperts = 1024, kMaxExpertsUsed = 64;

// Matrix `expert` of a stack.
constexpr Weight expert_of(const Weight& stack, uint32_t n_experts, uint32_t expert) {
  Weight w = stack;
  w.n_rows = stack.n_rows / n_experts;
  w.data = stack.data + size_t{expert} * w.n_rows * stack.row_bytes;
  return w;
}

// Chooses a token's experts from its logits [n_experts]: their indices in ascending order, and their weights. A NaN or
// a positive infinity among the logits that a weight depends on makes it NaN. lib/ops/experts_ref.cpp.
void choose_experts(const float* logits, uint32_t n_experts, uint32_t n_used, RouteRule rule, uint32_t* ids,
                    float* weights);

}  // namespace weir
