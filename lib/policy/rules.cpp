// The host's interpreter of a policy's rules; see rules.h. Each rule is one function here, which its kernels restate
// (cuda/pages, shaders): cases of equality and NaN included.
#include "policy/rules.h"

#include <algorithm>
#include <utility>

#include "kv/kv_cache.h"
#include "kv/page_copies.h"
#include "ops/page_accumulate.h"
#include "ops/page_score.h"
#include "ops/page_select.h"
#include "ops/page_stamp.h"
#include "ops/table.h"
#include "policy/page_fetcher.h"

namespace weir {
namespace {

bool stays(const StreamView& s, uint32_t row) { return (s.flags[row] & kPageStays) != 0; }
uint64_t end_of(const StreamView& s, uint32_t row) { return uint64_t{s.first_pos[row]} + s.len[row]; }
// Rows before the last one.
uint32_t last_row(const StreamView& s) { return s.n_pages - std::min(s.n_pages, 1u); }

// kWindow: the first page behind the front rows that may leave, if the stream is full or the window has passed it.
uint32_t window_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  uint32_t row = rules.front_rows;
  while (row < s.n_pages && stays(s, row)) ++row;
  if (row >= s.n_pages) return kNoRow;
  const bool is_past =
      rules.window_tokens != 0 && row + 1 < s.n_pages && end_of(s, row) + rules.window_tokens <= uint64_t{room.pos} + 1;
  return room.is_full || is_past ? row : kNoRow;
}

// Pages of the answer may have a budget of their own (decode_pages), even while the table has free rows that are meant
// for prompts: whether they have more.
bool is_over_decode_pages(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  if (rules.decode_pages == 0 || room.phase != Phase::kDecode) return false;
  uint32_t n_prompt = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) n_prompt += (s.flags[row] & kPagePrompt) != 0 ? 1 : 0;
  const bool is_whole = n_prompt <= rules.whole_prompt_pages;
  return s.n_pages + room.opens - n_prompt > (is_whole ? rules.all_pages - n_prompt : rules.decode_pages);
}

// kStalest: the least (stamp, score, row) of the pages that can leave and are not protected. The newest are: nothing
// has had a reason yet to read a page that was just sealed, while any query that happens to read an old page renews its
// stamp. Unless the stream is full, no page of a prompt leaves.
uint32_t stalest_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  if (!room.is_full && !is_over_decode_pages(rules, s, room)) return kNoRow;
  const uint32_t staying = room.is_full ? kPageStays : kPageStays | kPagePrompt;
  uint32_t n_free = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) n_free += (s.flags[row] & staying) == 0 ? 1 : 0;
  uint32_t n_left = n_free - protected_pages(rules.protect, n_free), end = 0;
  for (; end < s.n_pages && n_left > 0; ++end) n_left -= (s.flags[end] & staying) == 0 ? 1 : 0;
  return min_row(
      end, [&](uint32_t row) { return (s.flags[row] & staying) == 0 && !is_filling(s, row); },
      [&](uint32_t row) { return std::pair(s.stamp[row] + (rules.by_gap ? s.last_gap[row] : 0), score_of(s, row)); });
}

// kLightest: the least (score, row) outside the recent window, as long as a page there can leave.
uint32_t lightest_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  const auto weight = [&](uint32_t row) {
    const uint32_t steps = room.pos + 1 > s.stamp[row] ? room.pos + 1 - s.stamp[row] : 1;
    return rules.per_step ? score_of(s, row) / static_cast<float>(steps) : score_of(s, row);
  };
  const uint32_t row = min_row(
      last_row(s), [&](uint32_t r) { return !stays(s, r) && end_of(s, r) + rules.recent_tokens <= room.pos; }, weight);
  if (row != kNoRow) return row;
  return min_row(
      last_row(s), [&](uint32_t r) { return !stays(s, r); }, weight);
}

// kMarked: the most marks, which are counted in the stamp, then the least (score, row). A prompt is not marked.
uint32_t marked_victim(const StreamView& s, const RoomArgs& room) {
  const auto marks = [&](uint32_t row) {
    return room.phase == Phase::kDecode ? int64_t{s.stamp[row] - s.first_pos[row] - 1} : 0;
  };
  return min_row(
      last_row(s), [&](uint32_t row) { return !stays(s, row); },
      [&](uint32_t row) { return std::pair(-marks(row), score_of(s, row)); });
}

uint32_t random_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  return min_row(
      last_row(s), [&](uint32_t row) { return !stays(s, row); },
      [&](uint32_t row) { return random_order(rules.seed, room.stream, room.pos, s.first_pos[row]); });
}

// --- recall ----------------------------------------------------------------------------------------------------------

bool is_prompt(const StreamView& s, uint32_t row) { return (s.flags[row] & kPagePrompt) != 0; }
// Pages that are always wanted and never leave.
bool stays_there(const StepRules& rules, const StreamView& s, uint32_t row) {
  return row < rules.front_rows || stays(s, row);
}

enum class PoolPart : uint8_t { kAll, kPrompt, kAnswer };
bool is_in(PoolPart part, const StreamView& s, uint32_t row) {
  return part == PoolPart::kAll || (part == PoolPart::kPrompt) == is_prompt(s, row);
}

// The least (stamp, score, row) of the pages in the pool that neither stay, nor are among the newest `protect`, nor
// wanted.
uint32_t stalest_there(const StepRules& rules, const StreamView& s, PoolPart part, WantedPages wanted,
                       uint32_t protect) {
  const auto may = [&](uint32_t row) {
    return s.slots[row] != kNoSlot && !stays_there(rules, s, row) && is_in(part, s, row) &&
           !std::binary_search(wanted.begin(), wanted.end(), row);
  };
  const uint32_t end = s.n_pages - std::min(s.n_pages, 1 + protect);  // the open page and the newest before it
  return min_row(end, may, [&](uint32_t row) { return std::pair(s.stamp[row], score_of(s, row)); });
}

// The part that makes room when `n_coming` pages come, of prompts or not: prompts if they would hold more slots than
// are theirs.
PoolPart victim_part(const StepRules& rules, const StreamView& s, bool for_prompt, uint32_t n_coming) {
  if (rules.prompt_slots == 0) return PoolPart::kAll;
  uint32_t n_sealed = for_prompt ? n_coming : 0, n_there = n_sealed;
  for (uint32_t row = 0; row + 1 < s.n_pages; ++row) {
    n_sealed += is_prompt(s, row) ? 1 : 0;
    n_there += is_prompt(s, row) && s.slots[row] != kNoSlot ? 1 : 0;
  }
  return n_there > std::min(n_sealed, rules.prompt_slots) ? PoolPart::kPrompt : PoolPart::kAnswer;
}

uint32_t stalest_of_parts(const StepRules& rules, const StreamView& s, PoolPart first, WantedPages wanted,
                          uint32_t protect) {
  const uint32_t row = stalest_there(rules, s, first, wanted, protect);
  return row != kNoRow || first == PoolPart::kAll ? row : stalest_there(rules, s, PoolPart::kAll, wanted, protect);
}

// kCold: the page becomes cold. A prompt beside many pins takes the protected pages too.
uint32_t cold_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  const PoolPart first = victim_part(rules, s, room.phase == Phase::kPrompt, room.opens);
  const uint32_t row = stalest_of_parts(rules, s, first, {}, rules.protect.pages);
  return row != kNoRow ? row : stalest_of_parts(rules, s, first, {}, 0);
}

// What stays comes back first.
bool comes_before(const StepRules& rules, const StreamView& s, uint32_t a, uint32_t b) {
  if (stays_there(rules, s, a) != stays_there(rules, s, b)) return stays_there(rules, s, a);
  return score_of(s, a) != score_of(s, b) ? score_of(s, a) > score_of(s, b) : a < b;
}

// Writes the best `n` sealed pages of a part and those of it that stay to `list`; returns how many these are. There is
// room for all pages of the part.
uint32_t list_best(const StepRules& rules, const StreamView& s, PoolPart part, uint32_t n, uint32_t* list) {
  uint32_t n_all = 0, n_staying = 0;
  for (uint32_t row = 0; row + 1 < s.n_pages; ++row) {
    if (!is_in(part, s, row)) continue;
    list[n_all++] = row;
    n_staying += stays_there(rules, s, row) ? 1 : 0;
  }
  n = std::min(std::max(n, n_staying), n_all);
  std::nth_element(list, list + n, list + n_all, [&](uint32_t a, uint32_t b) { return comes_before(rules, s, a, b); });
  return n;
}

void bring_back(const StepRules& rules, KvCache& kv, PageCopies& copies, uint32_t stream, WantedPages wanted) {
  const StreamView s = kv.stream(stream);
  for (uint32_t left = rules.recall_pages; left > 0; --left) {
    const uint32_t row = next_to_return(rules, s, wanted);
    if (row == kNoRow) return;
    if (kv.stream(stream).n_resident == s.n_slots) {
      const uint32_t leaves = gives_slot_to(rules, s, row, wanted);
      if (leaves == kNoRow) return;
      kv.evict(stream, leaves);
    }
    (void)copies.bring_back(stream, row);  // a page that is lost is not wanted again
  }
}

// What is selected is wanted: it comes back as far as it may, and what is attended is listed.
void bring_wanted(const StepRules& rules, KvCache& kv, const SelectArgs& a, PageLists& lists) {
  bool all = true;
  for (uint32_t i = 0; i < kv.shape().n_kv_heads; ++i) {
    const uint32_t stream = a.layer * kv.shape().n_kv_heads + i;
    const StreamView s = kv.stream(stream);
    uint32_t* list = a.select + size_t{i} * s.capacity;
    uint32_t& n = a.n_select[i];
    if (rules.prompt_slots != 0) want_by_parts(rules, s, list, n);
    for (uint32_t at = 0; at < n && rules.stamps_wanted; ++at) s.stamp[list[at]] = kv.n_tokens() + 1;
    bring_back(rules, kv, *a.copies, stream, {list, n});
    all &= list_attended(rules, s, list, n);
  }
  if (!all || rules.attend_wanted) lists = {a.select, a.n_select};
}

// --- selection -------------------------------------------------------------------------------------------------------

// Behind a prompt policy the streams of a layer may hold different pages: pages that compete in the one with the most.
uint32_t competing_pages(const KvCache& kv, uint32_t layer, uint32_t candidate_flags) {
  uint32_t max = 0;
  for (uint32_t i = 0; i < kv.shape().n_kv_heads; ++i) {
    const uint32_t stream = layer * kv.shape().n_kv_heads + i;
    if (kv.window(stream) != 0) continue;  // attended whole
    const StreamView s = kv.stream(stream);
    const auto competes = [&](uint32_t flags) { return candidate_flags == 0 || (flags & candidate_flags) != 0; };
    max = std::max(max, static_cast<uint32_t>(std::count_if(s.flags, s.flags + s.n_pages, competes)));
  }
  return max;
}

Status list_pages(const StepRules& rules, float scale, OpContext& cx, const OpTable& ops, KvCache& kv,
                  const SelectArgs& a, PageLists& lists) {
  const KvView view = kv.view(a.layer);
  WEIR_TRY(ops.page_score(cx, {a.page_score, a.q, view, a.n_heads, rules.spread, scale}));
  PageSelectArgs select = {};
  select.score = a.page_score;
  select.group_score = kv.last_scores(a.layer);
  select.select = a.select;
  select.n_select = a.n_select;
  select.flags = kv.flags(a.layer);
  select.n_pages = view.n_pages;
  select.capacity = view.capacity;
  select.n_heads = a.n_heads;
  select.n_kv_heads = view.n_kv_heads;
  select.scale = scale;
  select.agg = rules.agg;
  select.budget = rules.select_budget;
  select.candidate_flags = rules.candidate_flags;
  select.n_sink_pages = rules.sink_pages;
  WEIR_TRY(ops.page_select(cx, select));
  lists = {.select = a.select, .n_select = a.n_select, .n_tokens = rules.attend_tokens};
  return {};
}

// With recall and attention that stops by itself.
PageSource* start_fetching(const StepRules& rules, KvCache& kv, const SelectArgs& a) {
  return a.fetcher->start(kv, *a.copies, a.layer, kv.n_tokens() + 1, rules.sink_pages);
}

// The pages of a layer whose tables have at most a microbatch each. Lists only if pages are lost.
void bring_whole_tables(const StepRules& rules, KvCache& kv, const SelectArgs& a, PageLists& lists) {
  PageSource* source = start_fetching(rules, kv, a);
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
void drop_lost(const KvCache& kv, const SelectArgs& a) {
  for (uint32_t i = 0; i < kv.shape().n_kv_heads; ++i) {
    const StreamView s = kv.stream(a.layer * kv.shape().n_kv_heads + i);
    uint32_t* list = a.select + size_t{i} * s.capacity;
    const uint32_t* end = std::remove_if(list, list + a.n_select[i], [&](uint32_t row) { return s.is_lost(row); });
    a.n_select[i] = static_cast<uint32_t>(end - list);
  }
}

AttnStop stop_of(const StepRules& rules, const KvCache& kv, const SelectArgs& a) {
  AttnStop stop;
  stop.rank = kv.last_scores(a.layer);
  stop.flags = kv.flags(a.layer);
  stop.bound = rules.stop_by_bounds ? a.page_score : nullptr;
  stop.n_sink_pages = rules.sink_pages;
  stop.microbatch = rules.stop_microbatch;
  stop.eps = rules.stop_eps;
  stop.quiet_pages = rules.stop_quiet_pages;
  stop.quiet_share = rules.stop_quiet_share;
  return stop;
}

// --- observation -----------------------------------------------------------------------------------------------------

// Turns raw page scores into softmax(scale * score) over the stream's pages, head by head.
void softmax_of_pages(const KvView& view, uint32_t n_heads, float scale, float* score) {
  const uint32_t group = n_heads / view.n_kv_heads;
  for (uint32_t head = 0; head < n_heads; ++head) {
    float* w = score + size_t{head} * view.capacity;
    const uint32_t n = view.n_pages[head / group];
    float high = -INFINITY, sum = 0.0f;
    for (uint32_t p = 0; p < n; ++p) high = std::max(high, scale * w[p]);
    for (uint32_t p = 0; p < n; ++p) sum += w[p] = std::exp(scale * w[p] - high);
    for (uint32_t p = 0; p < n; ++p) w[p] /= sum;
  }
}

// The weights are those of the listed pages, by their lists, or of all pages.
Status stamp_pages(const StepRules& rules, OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a,
                   const float* weight, const PageLists& lists) {
  const KvView view = kv.view(a.layer);
  PageStampArgs stamp = {};
  stamp.weight = weight;
  stamp.select = lists.select;
  stamp.n_select = lists.n_select;
  stamp.stamp = kv.stamps(a.layer);
  stamp.last_score = kv.last_scores(a.layer);
  stamp.flags = kv.flags(a.layer);
  stamp.n_pages = view.n_pages;
  stamp.capacity = view.capacity;
  stamp.n_heads = a.n_heads;
  stamp.n_kv_heads = view.n_kv_heads;
  stamp.now = a.now;
  stamp.rule = rules.stamp_rule;
  stamp.rank_all = rules.rank_all;
  stamp.r = rules.r;
  stamp.alpha = rules.alpha;
  stamp.gap = kv.last_gaps(a.layer);
  return ops.page_stamp(cx, stamp);
}

Status accumulate_mass(const StepRules& rules, OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a) {
  const KvView view = kv.view(a.layer);
  PageAccumulateArgs sum = {};
  sum.weight = a.page_mass;
  sum.score = kv.last_scores(a.layer);
  sum.len = view.len;
  sum.n_pages = view.n_pages;
  sum.capacity = view.capacity;
  sum.n_heads = a.n_heads;
  sum.n_kv_heads = view.n_kv_heads;
  sum.rule = rules.accumulate;
  sum.flags = kv.flags(a.layer);
  sum.mark = rules.marks ? kv.stamps(a.layer) : nullptr;
  const uint32_t n_tokens = kv.n_tokens();
  sum.n_tokens = &n_tokens;
  sum.first_pos = view.first_pos;
  sum.first_stream = a.layer * view.n_kv_heads;
  sum.options = rules.accumulate_options;
  return ops.page_accumulate(cx, sum);
}

}  // namespace

uint32_t choose_victim(const StepRules& rules, const StreamView& s, const RoomArgs& room) {
  switch (rules.victim) {
    case VictimRule::kNever:
      return kNoRow;
    case VictimRule::kWindow:
      return window_victim(rules, s, room);
    case VictimRule::kStalest:
      return stalest_victim(rules, s, room);
    case VictimRule::kLightest:
      return room.is_full ? lightest_victim(rules, s, room) : kNoRow;
    case VictimRule::kMarked:
      return room.is_full ? marked_victim(s, room) : kNoRow;
    case VictimRule::kRandom:
      return room.is_full ? random_victim(rules, s, room) : kNoRow;
    case VictimRule::kCold:
      return room.is_full ? cold_victim(rules, s, room) : kNoRow;
  }
  return kNoRow;
}

Status select_pages(const StepRules& rules, float scale, OpContext& cx, const OpTable& ops, KvCache& kv,
                    const SelectArgs& a, PageLists& lists) {
  if (!rules.selects || a.layer < rules.select_from_layer) return {};
  const bool stops = rules.stop_microbatch != 0;
  const uint32_t n_competing = competing_pages(kv, a.layer, rules.candidate_flags);
  if (!rules.recalls && n_competing <= rules.select_above_pages) return {};
  if (rules.recalls && stops && n_competing <= std::min(rules.stop_microbatch, rules.select_budget)) {
    bring_whole_tables(rules, kv, a, lists);
    return {};
  }
  PageLists listed;
  WEIR_TRY(list_pages(rules, scale, cx, ops, kv, a, listed));
  if (rules.recalls && !stops) {
    bring_wanted(rules, kv, a, lists);
    return {};
  }
  if (rules.recalls) drop_lost(kv, a);
  if (stops) listed.stop = stop_of(rules, kv, a);
  if (rules.recalls) listed.source = start_fetching(rules, kv, a);
  lists = listed;
  return {};
}

Status observe_pages(const StepRules& rules, float scale, OpContext& cx, const OpTable& ops, KvCache& kv,
                     const ObserveArgs& a) {
  if (a.layer < rules.observe_from_layer) return {};
  switch (rules.observe) {
    case StepRules::Observe::kNone:
      return {};
    case StepRules::Observe::kStampMass:
      return stamp_pages(rules, cx, ops, kv, a, a.page_mass, a.lists);
    case StepRules::Observe::kStampDigest: {
      const KvView view = kv.view(a.layer);
      WEIR_TRY(ops.page_score(cx, {a.page_score, a.q, view, a.n_heads, rules.stamp_spread, scale}));
      softmax_of_pages(view, a.n_heads, scale, a.page_score);
      return stamp_pages(rules, cx, ops, kv, a, a.page_score, {});
    }
    case StepRules::Observe::kAccumulate:
      return accumulate_mass(rules, cx, ops, kv, a);
  }
  return {};
}

uint32_t in_cache_pos(const StepRules& rules, const StreamView& s, uint32_t pos) {
  if (rules.in_cache_limit != 0) return std::min(pos, rules.in_cache_limit);
  if (s.n_pages <= rules.front_rows) return pos;
  return pos - (s.first_pos[rules.front_rows] - rules.front_rows * kPageTokens);
}

bool needs_page_mass(const StepRules& rules) {
  return rules.observe == StepRules::Observe::kStampMass || rules.observe == StepRules::Observe::kAccumulate;
}

DigestKind needed_digest(const StepRules& rules) {
  return rules.selects || rules.observe == StepRules::Observe::kStampDigest ? rules.digest : DigestKind::kNone;
}

RuleSet rules_in(const StepRules& rules) {
  RuleSet set = RuleSet().with(rules.victim).with(rules.observe).with(needed_digest(rules));
  if (rules.selects) set = set.with(rules.agg);
  switch (rules.observe) {
    case ObserveRule::kNone:
      return set;
    case ObserveRule::kStampMass:
    case ObserveRule::kStampDigest:
      return set.with(rules.stamp_rule);
    case ObserveRule::kAccumulate:
      return set.with(rules.accumulate);
  }
  return set;
}

Status check_backend_rules(const StepRules& rules, const RuleSet& have, const char* backend) {
  const char* missing = rules_in(rules).first_not_in(have);
  return missing == nullptr
             ? Status()
             : fail(WEIR_ERR_UNSUPPORTED,
                    "backend %s has no %s, a rule of this policy: take another option, or WEIR_SESSION_HOST_ATTENTION",
                    backend, missing);
}

void want_by_parts(const StepRules& rules, const StreamView& s, uint32_t* list, uint32_t& n) {
  const uint32_t n_sealed = last_row(s), from = rules.select_budget - 1;
  uint32_t n_prompt = 0;
  for (uint32_t row = 0; row < n_sealed; ++row) n_prompt += is_prompt(s, row) ? 1 : 0;
  const uint32_t answer_slots = s.n_slots - std::min(n_prompt, rules.prompt_slots);
  const uint32_t answer_room = answer_slots - std::min(answer_slots, rules.protect.pages + 1);
  const uint32_t from_answer = std::min({n_sealed - n_prompt, from, answer_room});
  n = list_best(rules, s, PoolPart::kPrompt, std::min(n_prompt, from - from_answer), list);
  n += list_best(rules, s, PoolPart::kAnswer, from_answer, list + n);
  list[n++] = s.n_pages - 1;
  std::sort(list, list + n);
}

uint32_t next_to_return(const StepRules& rules, const StreamView& s, WantedPages wanted) {
  uint32_t best = kNoRow;
  for (const uint32_t row : wanted) {
    if (s.slots[row] != kNoSlot || s.is_lost(row)) continue;
    if (best == kNoRow || comes_before(rules, s, row, best)) best = row;
  }
  return best;
}

uint32_t gives_slot_to(const StepRules& rules, const StreamView& s, uint32_t row, WantedPages wanted) {
  return stalest_of_parts(rules, s, victim_part(rules, s, is_prompt(s, row), 1), wanted, rules.protect.pages);
}

bool list_attended(const StepRules& rules, const StreamView& s, uint32_t* list, uint32_t& n) {
  const uint32_t n_wanted = n;
  n = 0;
  for (uint32_t i = 0; i < (rules.attend_wanted ? n_wanted : s.n_pages); ++i) {
    const uint32_t row = rules.attend_wanted ? list[i] : i;
    if (s.slots[row] != kNoSlot) list[n++] = row;
  }
  return n == s.n_pages;
}

}  // namespace weir
