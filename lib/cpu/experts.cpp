// Mixture of experts on the CPU. The tokens of a call are grouped by expert: one after another, in ascending order, the
// experts that any token has chosen multiply the rows of their tokens by the kernels of matmul and glu_matmul, GEMV for
// few rows and GEMM for many. So the weights of each chosen expert are read once, and those of the others not at all.
#include "cpu/experts.h"

#include <algorithm>
#include <cmath>

#include "cpu/matmul.h"
#include "cpu/matmul_plan.h"

namespace weir::cpu {
namespace {

struct Scratch {
  float* logits;        // [n_tok, n_experts]
  uint32_t* ids;        // [n_tok, n_used]
  float* weights;       // [n_tok, n_used]
  uint32_t* begin;      // [n_experts + 1] where each expert's tokens begin in `of_expert`
  uint32_t* of_expert;  // [n_tok * n_used] token * n_used + i, by expert and then by token
  float* x;             // [n_tok, d_model] rows of one expert's tokens
  float* inner;         // [n_tok, most rows of a gate]
  float* y;             // [n_tok, d_model]
  OpContext matmul;     // what the matrix kernels get
};

// experts_scratch_bytes adds up the same pieces.
Scratch lay_out(const OpContext& cx, const OpShapes& s) {
  Carver carver(cx.scratch);
  const size_t n = s.max_tok, chosen = n * s.n_experts_used;
  Scratch out = {};
  out.logits = carver.take<float>(n * s.n_experts);
  out.ids = carver.take<uint32_t>(chosen);
  out.weights = carver.take<float>(chosen);
  out.begin = carver.take<uint32_t>(s.n_experts + size_t{1});
  out.of_expert = carver.take<uint32_t>(chosen);
  out.x = carver.take<float>(n * s.d_model);
  out.inner = carver.take<float>(n * std::max(s.expert_ff, s.shared_ff));
  out.y = carver.take<float>(n * s.d_model);
  out.matmul = cx;
  out.matmul.scratch = carver.take<std::byte>(0);
  return out;
}

OpShapes shapes_of(const OpContext& cx, const ExpertsArgs& a) {
  OpShapes s;
  s.n_threads = cx.pool->n_threads();
  s.max_tok = a.n_tok;
  s.d_model = a.d_model();
  s.n_experts = a.router.n_experts;
  s.n_experts_used = a.router.n_used;
  s.expert_ff = a.d_ff();
  s.shared_ff = a.shared_ff();
  s.max_cols = std::max({s.d_model, s.expert_ff, s.shared_ff});
  return s;
}

// Rows for the threads to copy or to add, when there are enough of them.
template <class F>
void for_rows(OpContext& cx, size_t n, const F& f) {
  constexpr size_t kRows = 16;  // of a task
  if (n <= kRows) {
    for (size_t i = 0; i < n; ++i) f(i);
    return;
  }
  cx.pool->parallel_for((n + kRows - 1) / kRows, [&](size_t task, size_t) {
    for (size_t i = task * kRows; i < std::min(n, (task + 1) * kRows); ++i) f(i);
  });
}

void route(OpContext& cx, const ExpertsArgs& a, const Scratch& s) {
  const Router& r = a.router;
  const size_t d = a.d_model();
  const Weight router = {reinterpret_cast<const uint8_t*>(r.w), WeightType::kF32, r.n_experts, a.d_model(),
                         d * sizeof(float)};
  Product product{a.x, d, a.n_tok, 1, {}, false, nullptr};
  product.part[0] = {router, r.bias, s.logits, false};
  OpContext inner = s.matmul;
  run_product(inner, product);
  for_rows(cx, a.n_tok, [&](size_t t) {
    choose_experts(s.logits + t * r.n_experts, r, s.ids + t * r.n_used, s.weights + t * r.n_used);
  });
}

// Counting sort of what the tokens chose.
void group(const ExpertsArgs& a, const Scratch& s) {
  const uint32_t n_experts = a.router.n_experts, n = a.n_tok * a.router.n_used;
  std::fill_n(s.begin, n_experts + 1, 0u);
  for (uint32_t i = 0; i < n; ++i) ++s.begin[s.ids[i] + 1];
  for (uint32_t e = 0; e < n_experts; ++e) s.begin[e + 1] += s.begin[e];
  for (uint32_t i = 0; i < n; ++i) s.of_expert[s.begin[s.ids[i]]++] = i;
  for (uint32_t e = n_experts; e > 0; --e) s.begin[e] = s.begin[e - 1];
  s.begin[0] = 0;
}

struct Network {
  Weight gate, up, down;
  const float *gate_bias, *up_bias, *down_bias;
};

// out [n_rows, d_model] = the network's result for the rows x.
void run_network(const Network& w, Gate activation, const float* x, uint32_t n_rows, const Scratch& s, float* out) {
  OpContext cx = s.matmul;
  Product glu{x, w.gate.n_cols, n_rows, 2, {}, true, act_kernels().glu[static_cast<size_t>(activation)]};
  glu.part[0] = {w.gate, w.gate_bias, s.inner, false};
  glu.part[1] = {w.up, w.up_bias, s.inner, false};
  run_product(cx, glu);
  Product down{s.inner, w.down.n_cols, n_rows, 1, {}, false, nullptr};
  down.part[0] = {w.down, w.down_bias, out, false};
  run_product(cx, down);
}

const float* bias_of(const ExpertStack& stack, const ExpertsArgs& a, uint32_t expert) {
  return stack.bias == nullptr ? nullptr : stack.bias + size_t{expert} * (stack.w.n_rows / a.router.n_experts);
}

void add_scaled(float* y, const float* x, float scale, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

void run_expert(OpContext& cx, const ExpertsArgs& a, const Scratch& s, uint32_t expert) {
  const uint32_t* chosen = s.of_expert + s.begin[expert];
  const uint32_t n = s.begin[expert + 1] - s.begin[expert], n_experts = a.router.n_experts, n_used = a.router.n_used;
  if (n == 0) return;
  const size_t d = a.d_model();
  const float* x = a.x;
  if (n < a.n_tok) {  // otherwise the rows are all tokens, in their order
    for_rows(cx, n, [&](size_t i) { std::copy_n(a.x + chosen[i] / n_used * d, d, s.x + i * d); });
    x = s.x;
  }
  run_network(
      {expert_of(a.gate, n_experts, expert), expert_of(a.up, n_experts, expert), expert_of(a.down, n_experts, expert),
       bias_of(a.gate, a, expert), bias_of(a.up, a, expert), bias_of(a.down, a, expert)},
      a.activation, x, n, s, s.y);
  for_rows(cx, n, [&](size_t i) { add_scaled(a.y + chosen[i] / n_used * d, s.y + i * d, s.weights[chosen[i]], d); });
}

void run_shared(OpContext& cx, const ExpertsArgs& a, const Scratch& s) {
  const size_t d = a.d_model();
  run_network({a.shared_gate, a.shared_up, a.shared_down, nullptr, nullptr, nullptr}, a.activation, a.x, a.n_tok, s,
              s.y);
  for_rows(cx, a.n_tok, [&](size_t t) {
    double logit = 0.0;
    for (size_t i = 0; a.shared_router != nullptr && i < d; ++i)
      logit += double{a.shared_router[i]} * double{a.x[t * d + i]};
    const double scale = a.shared_router != nullptr ? 1.0 / (1.0 + std::exp(-logit)) : 1.0;
    add_scaled(a.y + t * d, s.y + t * d, static_cast<float>(scale), d);
  });
}

}  // namespace

uint64_t experts_scratch_bytes(const OpShapes& shapes) {
  if (shapes.n_experts == 0) return 0;
  const size_t n = shapes.max_tok, chosen = n * shapes.n_experts_used;
  uint64_t bytes = matmul_scratch_bytes(shapes);
  for (const size_t piece : {n * shapes.n_experts, chosen, chosen, shapes.n_experts + size_t{1}, chosen,
                             n * shapes.d_model, n * std::max(shapes.expert_ff, shapes.shared_ff), n * shapes.d_model})
    bytes += round_up(piece * sizeof(float), 64);
  return bytes;
}

Status experts(OpContext& cx, const ExpertsArgs& a) {
  if (a.n_tok == 0) return {};
  const OpShapes shapes = shapes_of(cx, a);
  const uint64_t needed = experts_scratch_bytes(shapes);
  if (needed > cx.scratch_bytes) {
    return fail(WEIR_ERR_INTERNAL, "experts of %u tokens need %llu bytes of scratch, got %llu", a.n_tok,
                static_cast<unsigned long long>(needed), static_cast<unsigned long long>(cx.scratch_bytes));
  }
  const Scratch s = lay_out(cx, shapes);
  route(cx, a, s);
  group(a, s);
  for (uint32_t expert = 0; expert < a.router.n_experts; ++expert) run_expert(cx, a, s, expert);
  if (a.shared_ff() != 0) run_shared(cx, a, s);
  return {};
}

}  // namespace weir::cpu
