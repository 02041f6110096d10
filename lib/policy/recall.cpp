// Which pages a step wants, which come back and which make room for them; see recall.h.
#include "policy/recall.h"

#include <algorithm>

namespace weir {
namespace {

constexpr uint32_t kNone = Policy::kNone;

bool is_prompt(const StreamView& s, uint32_t row) { return (s.flags[row] & kPagePrompt) != 0; }
// Pages that are always wanted and never leave.
bool stays(const StreamView& s, uint32_t row, const RecallOptions& o) {
  return row < o.selection.sink_pages || (s.flags[row] & kPageStays) != 0;
}

enum class Part : uint8_t { kAll, kPrompt, kAnswer };
bool is_in(Part part, const StreamView& s, uint32_t row) {
  return part == Part::kAll || (part == Part::kPrompt) == is_prompt(s, row);
}

// Rows of a step's wanted pages, ascending.
using Wanted = std::span<const uint32_t>;

// The resident page of least (stamp, score, row) that neither stays, nor is among the newest `protect`, nor wanted;
// kNone if there is none.
uint32_t stalest(const StreamView& s, const RecallOptions& o, Part part, Wanted wanted, uint32_t protect) {
  const uint32_t last = s.n_pages - std::min(s.n_pages, 1 + protect);  // the open page and the newest before it
  uint32_t best = kNone;
  for (uint32_t row = 0; row < last; ++row) {
    if (s.slots[row] == kNoSlot || stays(s, row, o) || !is_in(part, s, row)) continue;
    const bool is_less = best == kNone || s.stamp[row] < s.stamp[best] ||
                         (s.stamp[row] == s.stamp[best] && score_of(s, row) < score_of(s, best));
    if (is_less && !std::binary_search(wanted.begin(), wanted.end(), row)) best = row;
  }
  return best;
}

// The part that makes room when `n_coming` pages come, of prompts or not: prompts if they would hold more slots than
// are theirs.
Part victim_part(const StreamView& s, const RecallOptions& o, bool for_prompt, uint32_t n_coming) {
  if (o.prompt_slots == 0) return Part::kAll;
  uint32_t n_sealed = 0, n_resident = 0;
  for (uint32_t row = 0; row + 1 < s.n_pages; ++row) {
    if (!is_prompt(s, row)) continue;
    ++n_sealed;
    n_resident += s.slots[row] != kNoSlot ? 1u : 0u;
  }
  if (for_prompt) n_sealed += n_coming, n_resident += n_coming;
  return n_resident > std::min(n_sealed, o.prompt_slots) ? Part::kPrompt : Part::kAnswer;
}

uint32_t stalest_of_parts(const StreamView& s, const RecallOptions& o, Part first, Wanted wanted, uint32_t protect) {
  const uint32_t row = stalest(s, o, first, wanted, protect);
  return row != kNone || first == Part::kAll ? row : stalest(s, o, Part::kAll, wanted, protect);
}

// What stays comes back first.
bool comes_before(const StreamView& s, const RecallOptions& o, uint32_t a, uint32_t b) {
  if (stays(s, a, o) != stays(s, b, o)) return stays(s, a, o);
  return score_of(s, a) != score_of(s, b) ? score_of(s, a) > score_of(s, b) : a < b;
}

uint32_t best_cold(const StreamView& s, const RecallOptions& o, Wanted wanted) {
  uint32_t best = kNone;
  for (const uint32_t row : wanted) {
    if (s.slots[row] != kNoSlot || s.is_lost(row)) continue;
    if (best == kNone || comes_before(s, o, row, best)) best = row;
  }
  return best;
}

// Writes the best `n` sealed pages of a part and those of it that stay to `list`; returns how many these are. There is
// room for all pages of the part.
uint32_t list_best(const StreamView& s, const RecallOptions& o, Part part, uint32_t n, uint32_t* list) {
  uint32_t n_all = 0, n_staying = 0;
  for (uint32_t row = 0; row + 1 < s.n_pages; ++row) {
    if (!is_in(part, s, row)) continue;
    list[n_all++] = row;
    n_staying += stays(s, row, o) ? 1u : 0u;
  }
  n = std::min(std::max(n, n_staying), n_all);
  std::nth_element(list, list + n, list + n_all, [&](uint32_t a, uint32_t b) { return comes_before(s, o, a, b); });
  return n;
}

// Replaces a stream's list of wanted pages by the best of each part, whatever the pages of the other score.
void want_by_parts(const StreamView& s, const RecallOptions& o, uint32_t* list, uint32_t& n) {
  const RecallParts parts = recall_parts(s, o);
  n = list_best(s, o, Part::kPrompt, parts.wanted_prompt, list);
  n += list_best(s, o, Part::kAnswer, parts.wanted_answer, list + n);
  list[n++] = s.n_pages - 1;
  std::sort(list, list + n);
}

void bring_back(KvCache& kv, ColdPages& cold, uint32_t stream, Wanted wanted, const RecallOptions& o) {
  const StreamView s = kv.stream(stream);
  const auto most = static_cast<uint32_t>(wanted.size());
  for (uint32_t left = o.pages == 0 ? most : o.pages; left > 0; --left) {
    const uint32_t row = best_cold(s, o, wanted);
    if (row == kNone) return;
    if (kv.stream(stream).n_resident == s.n_slots) {
      const uint32_t leaves = stalest_of_parts(s, o, victim_part(s, o, is_prompt(s, row), 1), wanted, o.protect);
      if (leaves == kNone) return;
      kv.evict(stream, leaves);
    }
    (void)cold.recall(stream, row);  // a page that is lost is not wanted again
  }
}

// Replaces a stream's wanted pages by those to attend; returns whether these are all its pages.
bool attend_resident(const StreamView& s, bool only_wanted, uint32_t* list, uint32_t& n) {
  const uint32_t n_wanted = n;
  n = 0;
  for (uint32_t i = 0; i < (only_wanted ? n_wanted : s.n_pages); ++i) {
    const uint32_t row = only_wanted ? list[i] : i;
    if (s.slots[row] != kNoSlot) list[n++] = row;
  }
  return n == s.n_pages;
}

}  // namespace

RecallParts recall_parts(const StreamView& s, const RecallOptions& o) {
  uint32_t n_prompt = 0, n_sealed = s.n_pages - std::min(s.n_pages, 1u);
  for (uint32_t row = 0; row < n_sealed; ++row) n_prompt += is_prompt(s, row) ? 1u : 0u;
  RecallParts parts;
  parts.prompt_slots = std::min(n_prompt, o.prompt_slots);
  const uint32_t answer_slots = s.n_slots - parts.prompt_slots;
  parts.wanted_answer = std::min({n_sealed - n_prompt, o.from, answer_slots - std::min(answer_slots, o.protect + 1)});
  parts.wanted_prompt = std::min(n_prompt, o.from - parts.wanted_answer);
  return parts;
}

uint32_t recall_victim(const StreamView& s, const RoomArgs& room, const RecallOptions& o) {
  if (!room.is_full) return kNone;
  const Part first = victim_part(s, o, room.phase == Phase::kPrompt, room.opens);
  const uint32_t row = stalest_of_parts(s, o, first, {}, o.protect);
  // A prompt beside many pins takes the protected pages too.
  return row != kNone ? row : stalest_of_parts(s, o, first, {}, 0);
}

Status select_with_recall(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, const RecallOptions& o,
                          float scale, PageLists& lists) {
  PageLists wanted;
  WEIR_TRY(select_pages(cx, ops, kv, a, o.selection, scale, o.from + 1, 0, wanted));
  if (!kv.shape().recalls()) {
    lists = wanted;
    return {};
  }
  bool all = true;
  for (uint32_t kv_head = 0; kv_head < kv.shape().n_kv_heads; ++kv_head) {
    const uint32_t stream = a.layer * kv.shape().n_kv_heads + kv_head;
    const StreamView s = kv.stream(stream);
    uint32_t* list = a.select + size_t{kv_head} * s.capacity;
    uint32_t& n = a.n_select[kv_head];
    if (o.prompt_slots != 0) want_by_parts(s, o, list, n);
    if (o.stamp == RecallStamp::kWanted) {
      for (uint32_t i = 0; i < n; ++i) s.stamp[list[i]] = kv.n_tokens() + 1;
    }
    bring_back(kv, *a.cold, stream, {list, n}, o);
    all &= attend_resident(s, o.attend_top != 0, list, n);
  }
  if (!all || o.attend_top != 0) lists = wanted;
  return {};
}

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
  const uint32_t context = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  if (sinks < o.from || n_slots >= whole_pages(context)) return {};
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
  WEIR_TRY(read_agg(options, o.selection.agg));
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
  rules.recalls = needs.recall_slots != 0;
  rules.victim = rules.recalls ? VictimRule::kCold : VictimRule::kNever;
  rules.protect = {o.protect, 0.0f};
  rules.front_rows = rules.recalls ? o.selection.sink_pages : 0;
  set_selection(rules, o.selection, needs.page_lists, o.from + 1, 0);
  rules.recall_pages = o.pages == 0 ? needs.recall_slots : std::min(o.pages, needs.recall_slots);
  rules.attend_wanted = o.attend_top != 0;
  rules.stamps_wanted = o.stamp == RecallStamp::kWanted;
  rules.prompt_slots = o.prompt_slots;
  // However few pages there are, some may be cold, and all are estimated.
  if (rules.recalls) rules.select_above_pages = 0;
}

Status plan_recall(const char* policy, const PolicyConfig& config, const RecallOptions& o, PolicyNeeds& needs) {
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
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
  needs.page_lists = !holds_all || (o.attend_top != 0 && o.from + 1 < needs.pages_per_stream);
  needs.digest = needs.page_lists ? o.selection.digest : DigestKind::kNone;
  return {};
}

}  // namespace weir
