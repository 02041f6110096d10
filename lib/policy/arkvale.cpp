// ArkVale: pages that leave the pool can come back. Each step estimates all pages by their digests, wanted is what
// scores best, and wanted pages that are cold return before the step attends, over those that were wanted the longest
// ago.
// Time per step O(length / 16 + budget), device memory O(budget + length / 256), host memory O(length).
// Paper: Chen et al., "ArkVale: Efficient Generative LLM Inference with Recallable Key-Value Eviction", NeurIPS 2024,
// sec. 4 and 5; docs/algorithms.md, "ArkVale".
// Differs from the paper: pages of 16 tokens; every (layer, KV head) stream decides for itself, by the best estimate of
// any head of the group; at most recall_pages return in a step; no first pages are kept by rule, and no layer is left
// dense; docs/papers.md has the measurements.
#include <algorithm>
#include <new>

#include "policy/selection.h"

namespace weir {
namespace {

struct ArkValeOptions {
  DigestKind digest = DigestKind::kMinMax;
  float spread = 1.0f;
  AggMode agg = AggMode::kMaxZ;
  uint32_t recall_from = 0;   // pages that a step wants
  uint32_t recall_pages = 8;  // of them, most that return in a step and stream; 0: all
  uint32_t attend_top = 0;    // attended are the wanted pages, not all resident ones
  uint32_t protect = 0;       // newest sealed pages that do not leave
};

class ArkValePolicy final : public Policy {
 public:
  ArkValePolicy(const PolicyNeeds& needs, const ArkValeOptions& o, float scale) : o_(o), attn_scale_(scale) {
    needs_ = needs;
  }
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) ArkValePolicy(*this); }

  Status admit_prompt(const KvCache&, uint32_t) const override { return {}; }  // checked against the context already
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override {
    return chunk_that_fits(kv, n_left, batch_tokens);
  }
  uint32_t victim(const StreamView& s, const RoomArgs& room) const override {
    if (!room.crowded || needs_.recall_slots == 0) return kNone;
    const uint32_t row = stalest(s, UINT32_MAX, o_.protect);
    return row != kNone ? row : stalest(s, UINT32_MAX, 0);  // a prompt beside many pins takes the protected pages too
  }
  bool can_take_back_prompt() const override { return true; }
  uint32_t least_unpinned() const override { return needs_.recall_slots != 0 ? o_.recall_from + o_.protect + 1 : 2; }

  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const override {
    if (!needs_.page_lists) return {};
    SelectionOptions selection;
    selection.digest = o_.digest;
    selection.spread = o_.spread;
    selection.agg = o_.agg;
    PageLists wanted;
    WEIR_TRY(select_pages(cx, ops, kv, a, selection, attn_scale_, o_.recall_from + 1, 0, wanted));
    if (needs_.recall_slots == 0) {
      lists = wanted;
      return {};
    }
    bool all = true;
    for (uint32_t kv_head = 0; kv_head < kv.shape().n_kv_heads; ++kv_head) all &= bring_wanted(kv, a, kv_head);
    if (!all || o_.attend_top != 0) lists = wanted;
    return {};
  }

  StepRules step_rules() const override {
    StepRules rules;
    rules.victim = needs_.recall_slots != 0 ? VictimRule::kCold : VictimRule::kNever;
    rules.protect.pages = o_.protect;
    SelectionOptions selection;
    selection.agg = o_.agg;
    selection.spread = o_.spread;
    selection.skip_layers = 0;
    set_selection(rules, selection, needs_.page_lists, o_.recall_from + 1, 0);
    rules.recalls = needs_.recall_slots != 0;
    rules.recall_pages = o_.recall_pages == 0 ? o_.recall_from : std::min(o_.recall_pages, o_.recall_from);
    rules.attend_wanted = o_.attend_top != 0;
    return rules;
  }

 private:
  // Of the resident pages that are neither pinned nor among the newest `protect` nor wanted in step `now`, the one with
  // the least (stamp, score, row).
  static uint32_t stalest(const StreamView& s, uint32_t now, uint32_t protect) {
    const uint32_t last = s.n_pages - std::min(s.n_pages, 1 + protect);  // the open page and the newest before it
    uint32_t best = kNone;
    for (uint32_t row = 0; row < last; ++row) {
      if (s.slots[row] == kNoSlot || (s.flags[row] & kPageStays) != 0 || s.stamp[row] == now) continue;
      if (best == kNone || s.stamp[row] < s.stamp[best] ||
          (s.stamp[row] == s.stamp[best] && score_of(s, row) < score_of(s, best)))
        best = row;
    }
    return best;
  }

  // Makes what one stream wants resident, as far as recall_pages allows, and replaces its list by the pages to attend.
  // Returns whether these are all its pages.
  bool bring_wanted(KvCache& kv, const SelectArgs& a, uint32_t kv_head) const {
    const uint32_t stream = a.layer * kv.shape().n_kv_heads + kv_head, now = kv.n_tokens() + 1;
    const StreamView s = kv.stream(stream);
    uint32_t* list = a.select + size_t{kv_head} * s.capacity;
    uint32_t& n = a.n_select[kv_head];
    for (uint32_t i = 0; i < n; ++i) s.stamp[list[i]] = now;
    for (uint32_t left = o_.recall_pages == 0 ? n : o_.recall_pages; left > 0; --left) {
      const uint32_t row = best_cold(s, list, n);
      if (row == kNone) break;
      if (kv.stream(stream).n_resident == s.n_slots) {
        const uint32_t leaves = stalest(s, now, o_.protect);
        if (leaves == kNone) break;
        kv.evict(stream, leaves);
      }
      (void)a.cold->recall(stream, row);  // a page that is lost is not wanted again
    }
    uint32_t n_attended = 0;
    if (o_.attend_top != 0) {
      for (uint32_t i = 0; i < n; ++i) {
        if (s.slots[list[i]] != kNoSlot) list[n_attended++] = list[i];
      }
    } else {
      for (uint32_t row = 0; row < s.n_pages; ++row) {
        if (s.slots[row] != kNoSlot) list[n_attended++] = row;
      }
    }
    n = n_attended;
    return n == s.n_pages;
  }

  static uint32_t best_cold(const StreamView& s, const uint32_t* list, uint32_t n) {
    uint32_t best = kNone;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t row = list[i];
      if (s.slots[row] != kNoSlot || s.is_lost(row)) continue;
      if (best == kNone || comes_before(s, row, best)) best = row;
    }
    return best;
  }
  // Pinned pages come back first.
  static bool comes_before(const StreamView& s, uint32_t a, uint32_t b) {
    const bool a_pinned = (s.flags[a] & kPageKept) != 0, b_pinned = (s.flags[b] & kPageKept) != 0;
    return a_pinned != b_pinned ? a_pinned : score_of(s, a) > score_of(s, b);
  }

  ArkValeOptions o_;
  float attn_scale_;
};

}  // namespace

Status make_arkvale(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  static constexpr const char* kScopes[] = {"resident", "top"};
  PolicyNeeds needs;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  needs.pages_per_stream = whole_pages(needs.context_tokens);
  const uint32_t n_slots = budget_pages(config, needs.context_tokens);
  ArkValeOptions o;
  OptionReader options("arkvale", config.options);
  // Of 32 pages, 28 are wanted and 2 are protected; small pools protect less.
  o.protect = std::min(2u, n_slots / 8);
  WEIR_TRY(options.get_u32("protect_recent", o.protect, 0, 1u << 20));
  o.recall_from = std::max(1u, std::min(n_slots - n_slots / 8, n_slots - std::min(n_slots, o.protect + 1)));
  WEIR_TRY(read_digest(options, o.digest, o.spread));
  WEIR_TRY(read_agg(options, o.agg));
  if (o.agg == AggMode::kQHead)
    return fail(WEIR_ERR_INVALID_ARG, "policy arkvale: with agg=qhead the heads of a group would want different pages");
  WEIR_TRY(options.get_u32("recall_from", o.recall_from, 1, 1u << 20));
  WEIR_TRY(options.get_u32("recall_pages", o.recall_pages, 0, 1u << 20));
  WEIR_TRY(options.get_word("attend", o.attend_top, kScopes));
  WEIR_TRY(options.finish());
  const bool holds_all = n_slots >= needs.pages_per_stream;
  if (!holds_all && uint64_t{o.recall_from} + o.protect + 1 > n_slots) {
    return fail(
        WEIR_ERR_BUDGET,
        "policy arkvale with recall_from=%u and protect_recent=%u needs a budget of at least %llu tokens, not %u",
        o.recall_from, o.protect,
        static_cast<unsigned long long>((uint64_t{o.recall_from} + o.protect + 1) * kPageTokens),
        n_slots * kPageTokens);
  }
  needs.recall_slots = holds_all ? 0 : n_slots;
  needs.may_recall = true;
  needs.page_lists = !holds_all || (o.attend_top != 0 && o.recall_from + 1 < needs.pages_per_stream);
  needs.digest = needs.page_lists ? o.digest : DigestKind::kNone;
  static_assert(sizeof(ArkValePolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) ArkValePolicy(needs, o, config.attn_scale);
  return {};
}

}  // namespace weir
