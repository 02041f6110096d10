// The router of a mixture of experts: which experts a token goes to, and with what weights. The same description is
// read from the file (lib/models), taken by the op experts, and followed by the kernels of every device.
#pragma once

#include <cstdint>

namespace weir {

inline constexpr uint32_t kMaxExperts = 1024, kMaxExpertsUsed = 64, kMaxExpertGroups = 64;

// How logits become a choice and weights. An expert's score is its share of the softmax over all logits, or the sigmoid
// of its own. With a bias or groups, experts are chosen by score + bias, otherwise by their logits, which is the same
// order. The weights are the scores of the chosen, without the bias.
struct RouteRule {
  enum class Score : uint8_t { kSoftmax, kSigmoid };
  Score score = Score::kSoftmax;
  bool normalise = true;  // weights are divided by their sum
  float scale = 1.0f;     // and multiplied by this
  // Experts come in groups of equally many, one group behind the other. Only those of the groups count whose two best
  // experts have the largest sums.
  uint32_t n_groups = 1, n_groups_used = 1;
};

struct Router {
  uint32_t n_experts = 0, n_used = 0;  // 1 <= n_used <= n_experts; at most kMaxExperts and kMaxExpertsUsed
  RouteRule rule;
  const float* w = nullptr;            // [n_experts, d_model]
  const float* bias = nullptr;         // [n_experts] of the logits, or null
  const float* choice_bias = nullptr;  // [n_experts] of the scores when experts are chosen, or null
  bool by_logits() const { return choice_bias == nullptr && rule.n_groups <= 1; }
};

// What is added to a sum of weights before they are divided by it: all may be too small for f32.
inline constexpr float kTinySum = 1e-20f;

// Chooses a token's experts from its logits [n_experts]: their indices in ascending order, and their weights. Of equals
// the lower index comes first; a NaN counts as -inf. A NaN, or with softmax a positive infinity, among the logits that
// a weight depends on makes it NaN. lib/ops/experts_ref.cpp.
void choose_experts(const float* logits, const Router& router, uint32_t* ids, float* weights);

}  // namespace weir
