// ArkVale: pages that leave the pool can come back. Each step estimates all pages by their digests, wanted is what
// scores best, and wanted pages that are cold return before the step attends, over those that were wanted the longest
// ago.
// Time per step O(length / 16 + budget), device memory O(budget + length / 256), host memory O(length).
// Paper: Chen et al., "ArkVale: Efficient Generative LLM Inference with Recallable Key-Value Eviction", NeurIPS 2024,
// sec. 4 and 5; docs/algorithms.md, "ArkVale".
// Differs from the paper: pages of 16 tokens; every (layer, KV head) stream decides for itself, by the best estimate of
// any head of the group; at most recall_pages return in a step; and no layer is left dense. docs/papers.md has the
// measurements.
#include "policy/recall.h"

namespace weir {
Status make_arkvale(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  const uint32_t n_slots = recall_slots(config);
  RecallOptions o;
  o.protect = default_protect(n_slots);
  OptionReader options("arkvale", config.options);
  WEIR_TRY(read_recall(config, options, o));
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  WEIR_TRY(plan_recall("arkvale", config, o, needs));
  StepRules rules;
  set_recall(rules, needs, o);
  put_policy<RulesPolicy>(storage, out, needs, rules, config.attn_scale);
  return {};
}

}  // namespace weir
