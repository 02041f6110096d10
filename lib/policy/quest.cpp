// Quest: every page stays, and a step attends the pages whose keys can match its query best, judged by digests of the
// pages. Time per step O(length / 16 + budget), memory O(length).
// Paper: Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", arXiv:2406.10774, sec. 3;
// docs/algorithms.md, "Quest".
// Differs from the paper: the open page is always attended, and counts in the budget (as in the authors' runtime), and
// so is the first page; the query heads of a group share one list, which ranks pages by the best estimate of any head.
// With agg=qhead each head has a list of its own, as in the paper; docs/papers.md has the measurements.
#include <algorithm>
#include <new>

#include "policy/selection.h"

namespace weir {
namespace {

class QuestPolicy final : public Policy {
 public:
  QuestPolicy(const PolicyNeeds& needs, const SelectionOptions& o, uint32_t budget, uint32_t dense_pages, float scale)
      : o_(o), budget_(budget), dense_pages_(dense_pages), attn_scale_(scale) {
    needs_ = needs;
  }
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) QuestPolicy(*this); }

  Status admit_prompt(const KvCache&, uint32_t) const override { return {}; }  // checked against the context already
  uint32_t victim(const StreamView&, const RoomArgs&) const override { return kNone; }
  bool can_take_back_prompt() const override { return true; }
  uint32_t n_front_rows() const override { return o_.sink_pages; }

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    const KvView view = kv.view(a.layer);
    // Behind a prompt policy the streams of a layer may hold different pages, so the one with the most pages counts.
    const uint32_t most = *std::max_element(view.n_pages, view.n_pages + view.n_kv_heads);
    if (a.layer < o_.skip_layers || most <= std::max(budget_, dense_pages_)) return {};
    return select_pages(cx, ops, kv, a, o_, attn_scale_, budget_, 0, lists);
  }

  StepRules step_rules() const override {
    StepRules rules;
    set_selection(rules, o_, needs_.page_lists, budget_, 0);
    rules.select_above_pages = std::max(budget_, dense_pages_);
    return rules;
  }

 private:
  SelectionOptions o_;
  uint32_t budget_;       // pages attended
  uint32_t dense_pages_;  // with at most this many pages all are attended
  float attn_scale_;
};

}  // namespace

Status make_quest(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SelectionOptions o;
  uint32_t min_pages = 2;  // the paper's evaluation used 3
  uint32_t dense_tokens = 0;
  OptionReader options("quest", config.options);
  PolicyNeeds needs;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  const uint32_t attended =
      std::max(options.peek_u32("min_pages", min_pages), budget_pages(config, needs.context_tokens));
  o.sink_pages = default_sinks(attended);
  WEIR_TRY(read_selection(options, config.n_layers, o));
  WEIR_TRY(options.get_u32("min_pages", min_pages, 2, 1u << 20));
  WEIR_TRY(options.get_u32("dense_tokens", dense_tokens, 0, 1u << 30));
  WEIR_TRY(options.finish());
  const uint32_t budget = std::max(min_pages, budget_pages(config, needs.context_tokens));
  if (o.sink_pages + 2 > budget) {
    return fail(WEIR_ERR_BUDGET, "policy quest with sink_pages=%u needs a budget of at least %u tokens, not %u",
                o.sink_pages, (o.sink_pages + 2) * kPageTokens, config.budget_tokens);
  }
  if (budget < needs.pages_per_stream) {
    needs.digest = o.digest;
    needs.page_lists = true;
    needs.list_per_head = o.agg == AggMode::kQHead;
  }
  static_assert(sizeof(QuestPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) QuestPolicy(needs, o, budget, dense_tokens / kPageTokens, config.attn_scale);
  return {};
}

}  // namespace weir
