// H2O: the pages with the largest attention mass, summed over all steps, stay, and so does a recent window. The other
// pages leave for good. Time per step and memory O(budget), but for the first skip_layers layers, which are dense.
// Paper: Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference", arXiv:2306.14048, sec. 4;
// docs/algorithms.md, "H2O".
// Differs from the paper: pages instead of tokens (tests/policy/token_reference.h has the token form); the query heads
// of a group share one sum; budgets are numbers of tokens, not shares of the prompt; and a prompt longer than the
// budget is read in chunks with evictions between them, so that the budget holds at every moment. The paper sums
// without dividing and over the whole prompt: score=norm_sum, init=window and init=zero are additions.
#include "policy/summed.h"

namespace weir {

Status make_h2o(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  static constexpr const char* kScores[] = {"sum", "norm_sum"};
  static constexpr const char* kInits[] = {"exact", "window", "zero"};  // in the order of PromptSums
  SummedOptions o;
  o.recent = config.budget_tokens / 2;
  o.rows = 8;  // as in OpenVINO GenAI
  uint32_t normalise = 0, init = 0;
  if (o.skip_layers >= config.n_layers) o.skip_layers = 0;
  OptionReader options("h2o", config.options);
  // In the order in which saved sessions have them.
  WEIR_TRY(options.get_u32("recent", o.recent, 0, 1u << 30));
  WEIR_TRY(options.get_word("score", normalise, kScores));
  WEIR_TRY(options.get_word("init", init, kInits));
  o.prompt = static_cast<PromptSums>(init);
  WEIR_TRY(options.get_u32("init_rows", o.rows, 1, 4096));
  if (o.prompt != PromptSums::kWindow) WEIR_TRY(options.contradicts("init_rows", "any init but window"));
  WEIR_TRY(options.get_u32("skip_layers", o.skip_layers, 0, config.n_layers - 1));
  WEIR_TRY(options.finish());
  StepRules rules;
  rules.accumulate = AccumulateRule::kSum;
  rules.per_step = normalise != 0;  // a page's sum is divided by the number of steps that it holds
  return make_summed("h2o", config, o, rules, storage, out);
}

}  // namespace weir
