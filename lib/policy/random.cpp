// Random: the prompt stays, and pages of the answer leave at random, independently in every stream. It is the control
// for the policies that choose which page leaves: a policy that is no better than this gains nothing by choosing. Time
// per step and memory O(budget).
// Paper: "Random Attention", arXiv:2609.03430 (2026), which found it as good as the strongest of those policies on long
// reasoning; docs/algorithms.md, "Random".
// Differs from the paper: pages instead of tokens, and the page that was filled last stays. Which page leaves depends
// only on the seed, the stream and positions, so it is the same on every device and in every run.
#include "policy/pinned_prompt.h"

namespace weir {
Status make_random(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  PinnedPromptOptions o;
  uint32_t seed = 1;
  OptionReader options("random", config.options);
  WEIR_TRY(options.get_u32("seed", seed, 0, UINT32_MAX));
  WEIR_TRY(options.get_u32("min_decode_pages", o.min_decode_pages, 2, 1u << 20));
  WEIR_TRY(read_pinned_prompt(options, false, o));
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  WEIR_TRY(plan_pinned_prompt("random", config, o, needs));
  StepRules rules;
  rules.victim = VictimRule::kRandom;
  rules.seed = seed;
  put_policy<PinnedPromptPolicy>(storage, out, "random", needs, rules, config.attn_scale, o);
  return {};
}

}  // namespace weir
