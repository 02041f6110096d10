// Keyformer: as H2O, the pages with the largest sums stay, and so does a recent window; but what a step adds is a
// softmax of noisy logits at a temperature that rises, so that pages that are seldom attended keep a chance. Time per
// step and memory O(budget), but for the first skip_layers layers, which are dense.
// Paper: Adnan et al., "Keyformer: KV Cache Reduction through Key Tokens Selection for Efficient Generative Inference",
// MLSys 2024, arXiv:2403.09054, sec. 3; docs/algorithms.md, "Keyformer".
// Differs from the paper: pages instead of tokens, whose logit is the logarithm of their mass and whose noise is one
// number; the query heads of a group share one sum; the temperature rises with the position in the context, because the
// length of an answer is not known; and a prompt adds its plain weights, as with H2O.
#include "policy/summed.h"

namespace weir {

Status make_keyformer(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SummedOptions o;
  o.recent = config.budget_tokens / 4;  // 20 to 30 % in the paper
  AccumulateOptions noise;
  noise.seed = 1;
  noise.tau_end = 2.0f;
  noise.tau_tokens = context_of(config);
  OptionReader options("keyformer", config.options);
  WEIR_TRY(read_summed(config, options, o));
  WEIR_TRY(options.get_u32("seed", noise.seed, 0, UINT32_MAX));
  WEIR_TRY(options.get_f32("tau_init", noise.tau, 0.1f, 100.0f));
  WEIR_TRY(options.get_f32("tau_end", noise.tau_end, 0.1f, 100.0f));
  WEIR_TRY(options.get_u32("tau_tokens", noise.tau_tokens, 1, 1u << 30));
  WEIR_TRY(options.finish());
  StepRules rules;
  rules.accumulate = AccumulateRule::kNoisy;
  rules.accumulate_options = noise;
  return make_summed("keyformer", config, o, rules, storage, out);
}

}  // namespace weir
