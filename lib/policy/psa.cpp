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
#include <new>

#include "policy/page_fetcher.h"
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

class PsaPolicy final : public Policy {
 public:
  PsaPolicy(const PolicyNeeds& needs, const SelectionOptions& selection, const StopOptions& o, float scale)
      : selection_(selection), o_(o), attn_scale_(scale) {
    needs_ = needs;
    // What is wanted whole, before attention, by steps that do not stop.
    whole_.selection = selection;
    whole_.from = o.max_pages - 1;
    whole_.pages = 0;
    whole_.attend_top = 1;
  }
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) PsaPolicy(*this); }

  Status admit_prompt(const KvCache&, uint32_t) const override { return {}; }  // checked against the context already
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override {
    return recalls() ? chunk_that_fits(kv, n_left, batch_tokens) : std::min(n_left, batch_tokens);
  }
  uint32_t victim(const StreamView& s, const RoomArgs& room) const override {
    return recalls() ? recall_victim(s, room, whole_) : kNone;
  }
  bool can_take_back_prompt() const override { return true; }
  uint32_t n_front_rows() const override { return selection_.sink_pages; }
  uint32_t min_unpinned() const override { return recalls() && stops() ? min_slots(o_.microbatch, 0) : 2; }

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    const KvView view = kv.view(a.layer);
    const uint32_t most = *std::max_element(view.n_pages, view.n_pages + view.n_kv_heads);
    if (recalls() && !stops()) return select_with_recall(cx, ops, kv, a, whole_, attn_scale_, lists);
    if (recalls() && most <= whole_below()) {
      bring_whole_tables(kv, a, lists);
      return {};
    }
    if (a.layer < selection_.skip_layers || most <= whole_below()) return {};
    WEIR_TRY(select_pages(cx, ops, kv, a, selection_, attn_scale_, o_.max_pages, 0, lists));
    if (!stops()) return {};
    if (recalls()) {
      drop_lost(kv, a);
      lists.source = start_fetching(kv, a);
    }
    lists.stop.rank = kv.last_scores(a.layer);
    lists.stop.flags = kv.flags(a.layer);
    lists.stop.bound = o_.bound ? a.page_score : nullptr;
    lists.stop.n_sink_pages = selection_.sink_pages;
    lists.stop.microbatch = o_.microbatch;
    lists.stop.eps = o_.eps;
    lists.stop.quiet_pages = o_.quiet_pages;
    lists.stop.quiet_share = o_.quiet_share;
    return {};
  }

  StepRules step_rules() const override {
    StepRules rules;
    if (recalls()) {
      set_recall(rules, needs_, whole_);
      if (stops()) set_stop(rules);
      return rules;
    }
    set_selection(rules, selection_, needs_.page_lists, o_.max_pages, 0);
    rules.select_above_pages = whole_below();
    if (needs_.page_lists && stops()) set_stop(rules);
    return rules;
  }

 private:
  void set_stop(StepRules& rules) const {
    rules.stop_microbatch = o_.microbatch;
    rules.stop_eps = o_.eps;
    rules.stop_by_bounds = o_.bound;
    rules.stop_quiet_pages = o_.quiet_pages;
    rules.stop_quiet_share = o_.quiet_share;
  }

  PageSource* start_fetching(KvCache& kv, const SelectArgs& a) const {
    return a.fetcher->start(kv, *a.cold, a.layer, kv.n_tokens() + 1, selection_.sink_pages);
  }

  // Brings the pages of a layer whose tables have at most a microbatch each. Lists are made only if pages are lost.
  void bring_whole_tables(KvCache& kv, const SelectArgs& a, PageLists& lists) const {
    PageSource* source = start_fetching(kv, a);
    bool all = true;
    for (uint32_t i = 0; i < kv.shape().n_kv_heads; ++i) {
      const StreamView s = kv.stream(a.layer * kv.shape().n_kv_heads + i);
      uint32_t* list = a.select + size_t{i} * s.capacity;
      for (uint32_t row = 0; row < s.n_pages; ++row) list[row] = row;
      a.n_select[i] = source->load(i, list, source->want(i, list, s.n_pages, nullptr, 0));
      all &= a.n_select[i] == s.n_pages;
    }
    for (uint32_t i = 0; i < kv.shape().n_kv_heads; ++i) source->settle(i);
    if (!all) lists = {a.select, a.n_select};
  }

  // Pages that are lost are not listed.
  static void drop_lost(const KvCache& kv, const SelectArgs& a) {
    for (uint32_t i = 0; i < kv.shape().n_kv_heads; ++i) {
      const StreamView s = kv.stream(a.layer * kv.shape().n_kv_heads + i);
      uint32_t* list = a.select + size_t{i} * s.capacity;
      const uint32_t* end = std::remove_if(list, list + a.n_select[i], [&](uint32_t row) { return s.is_lost(row); });
      a.n_select[i] = static_cast<uint32_t>(end - list);
    }
  }

  bool recalls() const { return needs_.recall_slots != 0; }
  bool stops() const { return o_.stops(); }
  // With at most this many pages all are attended, whatever the estimates.
  uint32_t whole_below() const { return stops() ? std::min(o_.microbatch, o_.max_pages) : o_.max_pages; }

  SelectionOptions selection_;
  StopOptions o_;
  RecallOptions whole_;
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
Status read_stop(OptionReader& options, uint32_t all, uint32_t budget, SelectionOptions& selection, StopOptions& o) {
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
  }
  if (caps || needs.recall_slots != 0 || (o.stops() && o.microbatch < needs.pages_per_stream)) {
    needs.digest = selection.digest;
    needs.page_lists = true;
  }
  static_assert(sizeof(PsaPolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) PsaPolicy(needs, selection, o, config.attn_scale);
  return {};
}

}  // namespace weir
