// Reads the options of recall, and writes them as rules; see recall.h.
#include "policy/recall.h"

#include <algorithm>

namespace weir {
namespace {

// What a step wants besides the open page, with so many slots, unless the options say otherwise.
uint32_t default_from(uint32_t n_slots, uint32_t protect) {
  return std::max(1u, std::min(n_slots - n_slots / 8, n_slots - std::min(n_slots, protect + 1)));
}

// Reads "sink_pages"; all other options have been read. By default a step wants the first page and another one, at
// least.
Status read_sinks(const PolicyConfig& config, OptionReader& options, RecallOptions& o) {
  const uint32_t n_slots = recall_slots(config);
  uint32_t& sinks = o.selection.sink_pages;
  sinks = std::min(default_sinks(n_slots), o.from - 1);
  WEIR_TRY(options.get_later_u32("sink_pages", sinks, 0, 1u << 20, 0));
  if (sinks < o.from || n_slots >= whole_pages(context_of(config))) return {};
  if (options.has("recall_from")) {
    return fail(WEIR_ERR_INVALID_ARG,
                "option sink_pages=%u contradicts recall_from=%u, which counts the first pages and must be more", sinks,
                o.from);
  }
  const bool protects = options.has("protect_recent") || options.has("protect_share");
  uint32_t least = sinks + 2;
  while (default_from(least, protects ? o.protect : default_protect(least)) <= sinks) ++least;
  return fail(WEIR_ERR_BUDGET, "option sink_pages=%u needs a budget of at least %llu tokens, not %u", sinks,
              static_cast<unsigned long long>(uint64_t{least} * kPageTokens), n_slots * kPageTokens);
}

}  // namespace

Status read_recall(const PolicyConfig& config, OptionReader& options, RecallOptions& o) {
  static constexpr const char* kScopes[] = {"resident", "top"};
  const uint32_t n_slots = recall_slots(config);
  WEIR_TRY(options.get_u32("protect_recent", o.protect, 0, 1u << 20));
  o.from = default_from(n_slots, o.protect);
  WEIR_TRY(read_digest(options, o.selection.digest, o.selection.spread));
  WEIR_TRY(read_agg(options, o.selection.digest, o.selection.agg));
  if (o.selection.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG, "option agg=qhead: with recall the heads of a group would want different pages");
  WEIR_TRY(options.get_u32("recall_from", o.from, 1, 1u << 20));
  WEIR_TRY(options.get_u32("recall_pages", o.pages, 0, 1u << 20));
  WEIR_TRY(options.get_word("attend", o.attend_top, kScopes));
  return read_sinks(config, options, o);
}

Status refuse_recall_options(const OptionReader& options) {
  for (const char* name : {"recall_from", "recall_pages", "attend"}) WEIR_TRY(options.contradicts(name, "recall=off"));
  return {};
}

void set_recall(StepRules& rules, const PolicyNeeds& needs, const RecallOptions& o) {
  const bool lists = needs.recall_slots != 0 || (o.attend_top != 0 && o.from + 1 < needs.pages_per_stream);
  rules.recalls = needs.recall_slots != 0;
  rules.victim = rules.recalls ? VictimRule::kCold : VictimRule::kNever;
  rules.protect = {o.protect, 0.0f};
  rules.front_rows = rules.recalls ? o.selection.sink_pages : 0;
  set_selection(rules, o.selection, lists, o.from + 1, 0);
  rules.recall_pages = o.pages == 0 ? needs.recall_slots : std::min(o.pages, needs.recall_slots);
  rules.attend_wanted = o.attend_top != 0;
  rules.stamps_wanted = o.stamp == RecallStamp::kWanted;
  rules.prompt_slots = o.prompt_slots;
  // However few pages there are, some may be cold, and all are estimated.
  if (rules.recalls) rules.select_above_pages = 0;
}

Status plan_recall(const char* policy, const PolicyConfig& config, const RecallOptions& o, PolicyNeeds& needs) {
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  const uint32_t n_slots = recall_slots(config);
  const bool holds_all = n_slots >= needs.pages_per_stream;
  const uint64_t least = uint64_t{o.from} + o.protect + 1;
  if (!holds_all && least > n_slots) {
    return fail(WEIR_ERR_BUDGET,
                "policy %s with recall_from=%u and protect_recent=%u needs a budget of at least %llu tokens, not %u",
                policy, o.from, o.protect, static_cast<unsigned long long>(least * kPageTokens), n_slots * kPageTokens);
  }
  needs.recall_slots = holds_all ? 0 : n_slots;
  needs.may_recall = true;
  // What a step wants but the first pages, which are counted with the pins, what is protected, and the open page.
  if (!holds_all) needs.min_unpinned = o.from - std::min(o.from, o.selection.sink_pages) + o.protect + 1;
  return {};
}

}  // namespace weir
