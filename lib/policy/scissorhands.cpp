// Scissorhands: every page counts the latest steps that gave it at least its even share of attention; when a stream is
// full, the pages with the least counts leave at once, about half of them. A recent window stays. Time per step and
// memory O(budget), but for the first skip_layers layers, which are dense.
// Paper: Liu et al., "Scissorhands: Exploiting the Persistence of Importance Hypothesis for LLM KV Cache Compression at
// Test Time", NeurIPS 2023, arXiv:2305.17118, sec. 4; docs/algorithms.md, "Scissorhands".
// Differs from the paper: pages instead of tokens; a head of the group is enough for a hit; a hit loses weight by the
// step instead of being forgotten after `window` of them; and the last queries of a prompt count by their mean.
#include <algorithm>

#include "policy/summed.h"

namespace weir {

Status make_scissorhands(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SummedOptions o;
  o.recent = config.budget_tokens / 4;
  o.prompt = PromptSums::kHits;
  uint32_t window = 256;
  float drop = 0.5f;
  OptionReader options("scissorhands", config.options);
  WEIR_TRY(read_summed(config, options, o));
  WEIR_TRY(options.get_u32("window", window, 1, 1u << 20));
  WEIR_TRY(options.get_f32("drop", drop, 0.0f, 1.0f));
  WEIR_TRY(options.finish());
  o.rows = std::min(window, 256u);
  const uint32_t pages = budget_pages(config, context_of(config)), stay = whole_pages(o.recent) + 1;
  StepRules rules;
  rules.accumulate = AccumulateRule::kHits;
  rules.accumulate_options.keep = 1.0f - 1.0f / static_cast<float>(window);
  rules.leave_at_once = static_cast<uint32_t>(drop * static_cast<float>(pages - std::min(pages, stay)));
  return make_summed("scissorhands", config, o, rules, storage, out);
}

}  // namespace weir
