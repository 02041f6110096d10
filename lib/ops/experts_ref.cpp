// Reference of experts, in f64 up to the logits, to what the gates give and to the result; and the choice of experts,
// which the CPU backend shares.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/dot_ref.h"
#include "ops/experts.h"
#include "ops/gate_ref.h"
#include "ops/table.h"

namespace weir {
namespace {

constexpr double kNever = std::numeric_limits<double>::quiet_NaN();  // the value of an expert that does not count

double ranked(double value) { return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value; }

// The order in which experts, and groups, are chosen: the larger value, then the lower index.
struct Rank {
  double value;
  uint32_t index;
  bool before(const Rank& o) const { return value > o.value || (value == o.value && index < o.index); }
};

class Scores {
 public:
  Scores(const float* logits, const Router& r) : logits_(logits), softmax_(r.rule.score == RouteRule::Score::kSoftmax) {
    for (uint32_t e = 0; e < r.n_experts; ++e) most_ = std::max(most_, ranked(double{logits[e]}));
    if (!softmax_ || (r.by_logits() && r.rule.normalise)) return;
    double all = 0.0;
    for (uint32_t e = 0; e < r.n_experts; ++e) all += of(e);
    all_ = all;
  }
  // The score of an expert; not yet divided by the sum over all where the weights' own sum is what they are divided by.
  double of(uint32_t e) const {
    const double logit = logits_[e];
    return (softmax_ ? std::exp(logit - most_) : 1.0 / (1.0 + std::exp(-logit))) / all_;
  }

 private:
  const float* logits_;
  bool softmax_;
  double most_ = -std::numeric_limits<double>::infinity(), all_ = 1.0;
};

// Experts of groups that are not chosen get the value kNever.
void choose_groups(const Router& r, double* value) {
  const uint32_t n_groups = r.rule.n_groups, n = r.n_experts / n_groups;
  double sums[kMaxExpertGroups];
  for (uint32_t g = 0; g < n_groups; ++g) {
    double first = value[g * n], second = ranked(kNever);
    for (uint32_t e = g * n + 1; e < (g + 1) * n; ++e) {
      second = std::max(second, std::min(first, value[e]));
      first = std::max(first, value[e]);
    }
    sums[g] = n == 1 ? first : first + second;
  }
  for (uint32_t g = 0; g < n_groups; ++g) {
    uint32_t before = 0;
    for (uint32_t i = 0; i < n_groups; ++i) before += Rank{sums[i], i}.before({sums[g], g}) ? 1 : 0;
    if (before >= r.rule.n_groups_used) std::fill_n(value + size_t{g} * n, n, kNever);
  }
}

}  // namespace

void choose_experts(const float* logits, const Router& r, uint32_t* ids, float* weights) {
  const Scores scores(logits, r);
  double value[kMaxExperts];
  for (uint32_t e = 0; e < r.n_experts; ++e) {
    const double bias = r.choice_bias != nullptr ? double{r.choice_bias[e]} : 0.0;
    value[e] = ranked(r.by_logits() ? double{logits[e]} : scores.of(e) + bias);
  }
  if (r.rule.n_groups > 1) choose_groups(r, value);
  Rank last = {};
  for (uint32_t i = 0; i < r.n_used; ++i) {
    Rank best = {0.0, r.n_experts};
    for (uint32_t e = 0; e < r.n_experts; ++e) {
      const Rank rank = {value[e], e};
      if (std::isnan(value[e]) || (i > 0 && !last.before(rank))) continue;
      if (best.index == r.n_experts || rank.before(best)) best = rank;
    }
    last = best;
    uint32_t at = i;  // in ascending order of the index
    for (; at > 0 && ids[at - 1] > best.index; --at) ids[at] = ids[at - 1];
    ids[at] = best.index;
  }
  double sum = 0.0;
  for (uint32_t i = 0; i < r.n_used; ++i) sum += scores.of(ids[i]);
  if (!r.rule.normalise) sum = 1.0;
  for (uint32_t i = 0; i < r.n_used; ++i)
    weights[i] = static_cast<float>(scores.of(ids[i]) / (sum + double{kTinySum}) * double{r.rule.scale});
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
  const Router& r = a.router;
  const size_t d = a.d_model(), d_ff = a.d_ff();
  for (size_t e = 0; e < r.n_experts; ++e)
    logits[e] = static_cast<float>(dot(r.w + e * d, x, d) + (r.bias != nullptr ? double{r.bias[e]} : 0.0));
  choose_experts(logits, r, ids, weights);
  for (size_t i = 0; i < r.n_used; ++i) {
    glu(expert_of(a.gate, r.n_experts, ids[i]), bias_of(a.gate, r.n_experts, ids[i]),
        expert_of(a.up, r.n_experts, ids[i]), bias_of(a.up, r.n_experts, ids[i]), a.activation, x, inner + i * d_ff);
  }
  float* shared_inner = inner + r.n_used * d_ff;
  double shared = 1.0;
  if (a.shared_ff() != 0) {
    glu(a.shared_gate, nullptr, a.shared_up, nullptr, a.activation, x, shared_inner);
    if (a.shared_router != nullptr) shared = 1.0 / (1.0 + std::exp(-dot(a.shared_router, x, d)));
  }
  for (size_t row = 0; row < d; ++row) {
    double sum = y[row];
    for (size_t i = 0; i < r.n_used; ++i) {
      const float* bias = bias_of(a.down, r.n_experts, ids[i]);
      sum += double{weights[i]} * (dot_row(expert_of(a.down, r.n_experts, ids[i]), row, inner + i * d_ff) +
                                   (bias != nullptr ? double{bias[row]} : 0.0));
    }
    if (a.shared_ff() != 0) sum += shared * dot_row(a.shared_down, row, shared_inner);
    y[row] = static_cast<float>(sum);
  }
}

}  // namespace

uint64_t experts_scratch_bytes(const OpShapes& s) {
  const uint64_t n =
      uint64_t{s.n_experts} + 2 * s.n_experts_used + uint64_t{s.n_experts_used} * s.expert_ff + s.shared_ff;
  return n * sizeof(float);
}

Status experts(OpContext& cx, const ExpertsArgs& a) {
  OpShapes shapes;
  shapes.n_experts = a.router.n_experts;
  shapes.n_experts_used = a.router.n_used;
  shapes.expert_ff = a.d_ff();
  shapes.shared_ff = a.shared_ff();
  if (experts_scratch_bytes(shapes) > cx.scratch_bytes) return fail(WEIR_ERR_INTERNAL, "experts: too little scratch");
  auto* logits = reinterpret_cast<float*>(cx.scratch);
  auto* ids = reinterpret_cast<uint32_t*>(logits + a.router.n_experts);
  auto* weights = reinterpret_cast<float*>(ids + a.router.n_used);
  const size_t d = a.d_model();
  for (size_t t = 0; t < a.n_tok; ++t)
    one_token(a, a.x + t * d, a.y + t * d, logits, ids, weights, weights + a.router.n_used);
  return {};
}

}  // namespace ref
}  // namespace weir
