// PSA: a step takes pages in the order of their estimated importance, some at a time, and stops as soon as what it has
// seen is estimated to be more than `eps` of all attention: few pages where attention is sharp, many where it is flat.
// Time per step O(length / 16 + pages attended), memory O(length): every page stays.
// Paper: Zhou et al., "Progressive Sparse Attention: Algorithm and System Co-design for Efficient Attention in LLM
// Serving", arXiv:2503.00392, algorithm 1; docs/algorithms.md, "PSA".
// Differs from the paper: the query heads of a group stop together; the open page and the first pages are taken first,
// and no page that is not full counts as the least; with bound=true it stops only when the digests prove that enough
// was seen. docs/papers.md has the measurements.
#include <algorithm>
#include <new>

#include "policy/selection.h"

namespace weir {
namespace {

constexpr uint32_t kMicrobatch = 8;

struct StopOptions {
  float eps = 0.98f;
  uint32_t microbatch = kMicrobatch;
  uint32_t max_pages = 0;  // most that a step attends of a stream
  bool bound = false;
};

class PsaPolicy final : public Policy {
 public:
  PsaPolicy(const PolicyNeeds& needs, const SelectionOptions& selection, const StopOptions& o, float scale)
      : selection_(selection), o_(o), attn_scale_(scale) {
    needs_ = needs;
  }
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) PsaPolicy(*this); }

  Status admit_prompt(const KvCache&, uint32_t) const override { return {}; }  // checked against the context already
  uint32_t victim(const StreamView&, const RoomArgs&) const override { return kNone; }
  bool can_take_back_prompt() const override { return true; }

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    const KvView view = kv.view(a.layer);
    const uint32_t most = *std::max_element(view.n_pages, view.n_pages + view.n_kv_heads);
    if (a.layer < selection_.skip_layers || most <= whole_below()) return {};
    WEIR_TRY(select_pages(cx, ops, kv, a, selection_, attn_scale_, o_.max_pages, 0, lists));
    if (!stops()) return {};
    lists.stop.rank = kv.last_scores(a.layer);
    lists.stop.flags = kv.flags(a.layer);
    lists.stop.bound = o_.bound ? a.page_score : nullptr;
    lists.stop.n_sink_pages = selection_.sink_pages;
    lists.stop.microbatch = o_.microbatch;
    lists.stop.eps = o_.eps;
    return {};
  }

  StepRules step_rules() const override {
    StepRules rules;
    set_selection(rules, selection_, needs_.page_lists, o_.max_pages, 0);
    rules.select_above_pages = whole_below();
    if (!needs_.page_lists || !stops()) return rules;
    rules.stop_microbatch = o_.microbatch;
    rules.stop_eps = o_.eps;
    rules.stop_by_bounds = o_.bound;
    return rules;
  }

 private:
  bool stops() const { return o_.eps < 1.0f; }
  // With at most this many pages all are attended, whatever the estimates.
  uint32_t whole_below() const { return stops() ? std::min(o_.microbatch, o_.max_pages) : o_.max_pages; }

  SelectionOptions selection_;
  StopOptions o_;
  float attn_scale_;
};

// The microbatch must fit under the cap, and the pages that are always taken into it.
Status check_cap(const SelectionOptions& selection, const StopOptions& o, bool has_microbatch) {
  if (has_microbatch && o.microbatch > o.max_pages) {
    return fail(WEIR_ERR_INVALID_ARG, "policy psa: option mb=%u contradicts max_pages=%u, which it must not exceed",
                o.microbatch, o.max_pages);
  }
  if (selection.sink_pages + 2 <= o.max_pages) return {};
  return fail(WEIR_ERR_BUDGET, "policy psa: option max_pages=%u with sink_pages=%u: at least %u are needed",
              o.max_pages, selection.sink_pages, selection.sink_pages + 2);
}

// `all`: pages of the context. `budget`: of the budget, at most all.
Status read_stop(OptionReader& options, uint32_t all, uint32_t budget, SelectionOptions& selection, StopOptions& o) {
  bool recall = false;
  WEIR_TRY(options.get_f32("eps", o.eps, 0.0f, 1.0f));
  WEIR_TRY(options.get_u32("mb", o.microbatch, 1, kSplitPages));
  WEIR_TRY(options.get_bool("bound", o.bound));
  WEIR_TRY(options.get_bool("recall", recall));
  if (recall) {
    return fail(WEIR_ERR_UNSUPPORTED, "policy psa: option recall=on: this version keeps all pages in the pool");
  }
  o.max_pages = budget;
  WEIR_TRY(options.get_u32("max_pages", o.max_pages, 2, 1u << 20));
  if (o.max_pages > budget && budget < all) {
    return fail(WEIR_ERR_INVALID_ARG, "policy psa: option max_pages=%u contradicts the budget of %u pages", o.max_pages,
                budget);
  }
  o.max_pages = std::min(o.max_pages, all);
  if (!o.bound) return {};
  if (options.has("digest") && selection.digest != DigestKind::kMinMax)
    return fail(WEIR_ERR_INVALID_ARG, "policy psa: option bound=true: only digest=minmax bounds what it has not seen");
  WEIR_TRY(options.contradicts("spread", "bound=true"));
  if (o.max_pages < all) {
    return fail(WEIR_ERR_INVALID_ARG,
                "policy psa: option bound=true: max_pages or a budget of %u pages would stop before eps is reached",
                o.max_pages);
  }
  selection.digest = DigestKind::kMinMax;
  return {};
}

}  // namespace

Status make_psa(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SelectionOptions selection;
  StopOptions o;
  PolicyNeeds needs;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  OptionReader options("psa", config.options);
  WEIR_TRY(read_selection(options, config.n_layers, selection));
  if (selection.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG, "policy psa: option agg=qhead: the heads of a group stop together");
  WEIR_TRY(read_stop(options, needs.pages_per_stream, budget_pages(config, needs.context_tokens), selection, o));
  WEIR_TRY(options.finish());
  const bool caps = o.max_pages < needs.pages_per_stream;
  if (caps) WEIR_TRY(check_cap(selection, o, options.has("mb")));
  o.microbatch = std::min(o.microbatch, o.max_pages);
  if (caps || (o.eps < 1.0f && o.microbatch < needs.pages_per_stream)) {
    needs.digest = selection.digest;
    needs.page_lists = true;
  }
  static_assert(sizeof(PsaPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) PsaPolicy(needs, selection, o, config.attn_scale);
  return {};
}

}  // namespace weir
