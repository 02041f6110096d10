// PSA: a step takes pages in the order of their estimated importance, some at a time, and stops as soon as what it has
// seen is estimated to be more than `eps` of all attention: few pages where attention is sharp, many where it is flat.
// Time per step O(length / 16 + pages attended), memory O(length): every page stays. With recall=on the pool is a cache
// of them: pages come back microbatch by microbatch, as attention asks for them, with the same results.
// Paper: Zhou et al., "Progressive Sparse Attention: Algorithm and System Co-design for Efficient Attention in LLM
// Serving", arXiv:2503.00392, algorithm 1; docs/algorithms.md, "PSA".
// Differs from the paper: the query heads of a group stop together; the open page and the first pages are taken first,
// and no page that is not full counts as the least; with bound=true it stops only when the digests prove that enough
// was seen. docs/papers.md has the measurements.
#include <algorithm>

#include "policy/recall.h"

namespace weir {
namespace {

constexpr uint32_t kMicrobatch = 8, kRecallMicrobatch = 4;

struct StopOptions {
  float eps = 0.98f;
  uint32_t microbatch = kMicrobatch;
  uint32_t max_pages = 0;  // most that a step attends of a stream
  bool bound = false;
  bool recall = false;
  uint32_t one_pool = 0;     // the slots of all streams are one pool
  uint32_t quiet_pages = 0;  // > 0: stop after so many pages without much, instead of by eps
  float quiet_share = 0.03f;

  bool stops() const { return eps < 1.0f || quiet_pages > 0; }
};

// Slots that a step needs: for what it attends, for what it may attend next, the open page, and the first pages, which
// never leave.
constexpr uint32_t min_slots(uint32_t microbatch, uint32_t sinks) { return 2 * microbatch + 1 + sinks; }

// A step that does not stop wants all that it attends at once, before attention.
RecallOptions whole_recall(const SelectionOptions& selection, const StopOptions& o) {
  RecallOptions whole;
  whole.selection = selection;
  whole.from = o.max_pages - 1;
  whole.pages = 0;
  whole.attend_top = 1;
  return whole;
}

StepRules rules_of(const PolicyNeeds& needs, const SelectionOptions& selection, const StopOptions& o, bool selects) {
  StepRules rules;
  if (needs.recall_slots != 0) {
    set_recall(rules, needs, whole_recall(selection, o));
  } else {
    set_selection(rules, selection, selects, o.max_pages, 0);
    // With at most this many pages all are attended, whatever the estimates.
    rules.select_above_pages = o.stops() ? std::min(o.microbatch, o.max_pages) : o.max_pages;
  }
  if (!selects || !o.stops()) return rules;
  rules.stop_microbatch = o.microbatch;
  rules.stop_eps = o.eps;
  rules.stop_by_bounds = o.bound;
  rules.stop_quiet_pages = o.quiet_pages;
  rules.stop_quiet_share = o.quiet_share;
  return rules;
}

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

// With recall the pool has a slot for the pages of two microbatches; a step that does not stop attends all at once.
Status check_slots(const SelectionOptions& selection, const StopOptions& o, uint32_t n_slots) {
  if (selection.skip_layers != 0)
    return fail(WEIR_ERR_INVALID_ARG, "policy psa: option skip_layers=%u contradicts recall=on", selection.skip_layers);
  if (!o.stops() && o.one_pool != 0) {
    return fail(WEIR_ERR_INVALID_ARG,
                "policy psa: option pool=unified contradicts eps=1, with which a step wants all "
                "that it attends at once");
  }
  if (!o.stops() && o.max_pages > n_slots) {
    return fail(WEIR_ERR_BUDGET, "policy psa: with eps=1 a step attends max_pages=%u at once, the budget has %u pages",
                o.max_pages, n_slots);
  }
  const uint32_t least = min_slots(o.microbatch, selection.sink_pages);
  if (!o.stops() || n_slots >= least) return {};
  return fail(WEIR_ERR_BUDGET,
              "policy psa: with recall=on, mb=%u and sink_pages=%u a budget of at least %u tokens is needed, not %u",
              o.microbatch, selection.sink_pages, least * kPageTokens, n_slots * kPageTokens);
}

// The rule of quiet pages stands instead of eps and bound.
Status read_quiet(OptionReader& options, StopOptions& o) {
  WEIR_TRY(options.get_u32("quiet", o.quiet_pages, 0, 1u << 20));
  WEIR_TRY(options.get_f32("quiet_share", o.quiet_share, 0.0f, 1.0f));
  if (o.quiet_pages == 0) return options.contradicts("quiet_share", "quiet=0");
  if (o.bound) return fail(WEIR_ERR_INVALID_ARG, "policy psa: option quiet contradicts bound=true");
  return options.contradicts("eps", "quiet");
}

// `all`: pages of the context. `budget`: of the budget, at most all.
Status read_stop(OptionReader& options, uint32_t all, uint32_t budget, const SelectionOptions& selection,
                 StopOptions& o) {
  WEIR_TRY(options.get_f32("eps", o.eps, 0.0f, 1.0f));
  if (o.recall) {
    const uint32_t taken = std::min(budget, 1 + selection.sink_pages);
    o.microbatch = std::clamp((budget - taken) / 2, 1u, kRecallMicrobatch);
  }
  WEIR_TRY(options.get_u32("mb", o.microbatch, 1, kSplitPages));
  WEIR_TRY(options.get_bool("bound", o.bound));
  WEIR_TRY(read_quiet(options, o));
  o.max_pages = o.recall && o.bound ? all : budget;
  WEIR_TRY(options.get_u32("max_pages", o.max_pages, 2, 1u << 20));
  if (o.max_pages > budget && budget < all && !o.recall) {
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
  return {};
}

}  // namespace

Status make_psa(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  SelectionOptions selection;
  StopOptions o;
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  OptionReader options("psa", config.options);
  const uint32_t n_slots = budget_pages(config, needs.context_tokens);
  static constexpr const char* kPools[] = {"stream", "unified"};
  WEIR_TRY(options.get_bool("recall", o.recall));
  WEIR_TRY(options.get_word("pool", o.one_pool, kPools));
  if (!o.recall) WEIR_TRY(options.contradicts("pool", "recall=off"));
  const bool recalls = o.recall && n_slots < needs.pages_per_stream;
  if (recalls) selection.skip_layers = 0;
  selection.sink_pages = default_sinks(std::min(n_slots, options.peek_u32("max_pages", n_slots)));
  // Nobody asked for a first page that leaves no slots for the microbatches. Options are read in the order in which
  // saved sessions have them.
  const bool stops = options.peek_f32("eps", o.eps) < 1.0f || options.peek_u32("quiet", 0) > 0;
  const bool takes_turns = recalls && stops;
  if (takes_turns && min_slots(options.peek_u32("mb", 1), selection.sink_pages) > n_slots) selection.sink_pages = 0;
  if (options.peek_bool("bound", o.bound)) selection.digest = DigestKind::kMinMax;
  WEIR_TRY(read_selection(options, config.n_layers, selection));
  if (selection.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG, "policy psa: option agg=qhead: the heads of a group stop together");
  WEIR_TRY(read_stop(options, needs.pages_per_stream, n_slots, selection, o));
  WEIR_TRY(options.finish());
  const bool caps = o.max_pages < needs.pages_per_stream;
  if (caps) WEIR_TRY(check_cap(selection, o, options.has("mb")));
  o.microbatch = std::min(o.microbatch, o.max_pages);
  needs.may_recall = o.recall;
  if (recalls) {
    WEIR_TRY(check_slots(selection, o, n_slots));
    needs.recall_slots = n_slots;
    needs.fetch_pages = o.microbatch;
    needs.one_pool = o.one_pool != 0;
    if (o.stops()) needs.min_unpinned = min_slots(o.microbatch, 0);
  }
  const bool selects = caps || recalls || (o.stops() && o.microbatch < needs.pages_per_stream);
  put_policy<RulesPolicy>(storage, out, needs, rules_of(needs, selection, o, selects), config.attn_scale);
  return {};
}

}  // namespace weir
