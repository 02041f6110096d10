// Quest: every page stays, and a step attends the pages whose keys can match its query best, judged by digests of the
// pages. Time per step O(length / 16 + budget), memory O(length).
// Paper: Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", arXiv:2406.10774, sec. 3;
// docs/algorithms.md, "Quest".
// Differs from the paper: the open page is always attended, and counts in the budget (as in the authors' runtime), and
// so is the first page; the query heads of a group share one list, which ranks pages by the best estimate of any head.
// With agg=qhead each head has a list of its own, as in the paper; docs/papers.md has the measurements. With unit=token
// the pages are candidates, and of their tokens the budget's number is attended (TokenChoice).
#include <algorithm>

#include "policy/selection.h"

namespace weir {
namespace {

// Tokens are chosen for the heads of a group together, by vector code.
Status check_unit(const PolicyConfig& config, const SelectionOptions& o, uint32_t unit) {
  if (unit == 0) return {};
  if (o.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG, "option unit=token: with agg=qhead the heads of a group attend different pages");
  if (config.head_dim % 8 == 0) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "option unit=token needs heads of a multiple of 8 elements, not %u",
              config.head_dim);
}

}  // namespace

Status make_quest(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SelectionOptions o;
  uint32_t min_pages = 2;  // the paper's evaluation used 3
  uint32_t dense_tokens = 0, unit = 0, candidates = 4;
  OptionReader options("quest", config.options);
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  const uint32_t attended =
      std::max(options.peek_u32("min_pages", min_pages), budget_pages(config, needs.context_tokens));
  o.sink_pages = default_sinks(attended);
  WEIR_TRY(read_selection(options, config.n_layers, o));
  WEIR_TRY(options.get_u32("min_pages", min_pages, 2, 1u << 20));
  WEIR_TRY(options.get_u32("dense_tokens", dense_tokens, 0, 1u << 30));
  static constexpr const char* kUnits[] = {"page", "token"};
  WEIR_TRY(options.get_later_word("unit", unit, kUnits, 0));
  WEIR_TRY(options.get_later_u32("candidates", candidates, 1, 1u << 10, 4));
  if (unit == 0) WEIR_TRY(options.contradicts("candidates", "unit=page"));
  WEIR_TRY(check_unit(config, o, unit));
  WEIR_TRY(options.finish());
  const uint32_t budget = std::max(min_pages, budget_pages(config, needs.context_tokens));
  if (o.sink_pages + 2 > budget) {
    return fail(WEIR_ERR_BUDGET, "policy quest with sink_pages=%u needs a budget of at least %u tokens, not %u",
                o.sink_pages, (o.sink_pages + 2) * kPageTokens, config.budget_tokens);
  }
  StepRules rules;
  const auto n_candidates =
      static_cast<uint32_t>(std::min<uint64_t>(uint64_t{budget} * candidates, needs.pages_per_stream));
  set_selection(rules, o, budget < needs.pages_per_stream, unit == 0 ? budget : n_candidates, 0);
  if (unit != 0 && rules.selects) rules.attend_tokens = budget * kPageTokens;
  rules.select_above_pages = std::max(budget, dense_tokens / kPageTokens);  // with at most so many all are attended
  put_policy<RulesPolicy>(storage, out, needs, rules, config.attn_scale);
  return {};
}

}  // namespace weir
