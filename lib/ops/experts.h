// The op experts: a mixture of experts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/router.h"
#include "ops/types.h"
#include "quant/weight_type.h"

namespace weir {

// One matrix [n_rows, n_cols] per expert, one below the other, and their biases. On the processor there may be other
// rows between them.
struct ExpertStack {
  Weight w;                     // [n_experts * n_rows, n_cols]
  const float* bias = nullptr;  // [n_experts, n_rows] or null
  uint32_t n_between = 0;       // rows between one expert's matrix and the next one's
};

// Mixture of experts (docs/algorithms.md, "Mixture of experts"). Per token the router chooses n_used experts. Each is a
// gated feed-forward network, and
//   y += sum over the chosen of weight * (Wd (activation(Wg x (+ bias)) * (Wu x (+ bias))) (+ bias))
// plus, with a shared expert, the same of the shared matrices, which have no biases, times sigmoid(shared_router . x)
// if there is such a row. Experts without a gate have one matrix as gate and up.
struct ExpertsArgs {
  float* y;        // in/out [n_tok, d_model]; not x
  const float* x;  // [n_tok, d_model]
  uint32_t n_tok;
  Router router;
  Gate activation;
  ExpertStack gate, up;                     // d_ff rows, d_model columns
  ExpertStack down;                         // d_model rows, d_ff columns
  const float* shared_router = nullptr;     // [d_model] or null
  Weight shared_gate = {}, shared_up = {};  // [shared_ff, d_model]
  Weight shared_down = {};                  // [d_model, shared_ff]; of no columns: there is no shared expert
  uint32_t d_model() const { return gate.w.n_cols; }
  uint32_t d_ff() const { return down.w.n_cols; }
  uint32_t shared_ff() const { return shared_down.n_cols; }
};

// Matrix `expert` of a stack.
constexpr Weight expert_of(const ExpertStack& stack, uint32_t n_experts, uint32_t expert) {
  Weight w = stack.w;
  w.n_rows = stack.w.n_rows / n_experts;
  w.data = stack.w.data + size_t{expert} * (w.n_rows + stack.n_between) * w.row_bytes;
  return w;
}

}  // namespace weir
