// The registry of policies, and code that they share.
#include "policy/policy.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ops/table.h"
#include "ops/token_mass.h"
#include "policy/heads.h"
#include "policy/options.h"

namespace weir {

#define WEIR_POLICY(name) Status make_##name(const PolicyConfig& config, PolicyStorage& storage, Policy*& out);
#include "policy/policies.inc"
#undef WEIR_POLICY
#define WEIR_PROMPT_POLICY(name) \
  Status make_##name(const PolicyConfig& config, PolicyStorage& storage, Policy& next, Policy*& out);
#include "policy/prompt_policies.inc"
#undef WEIR_PROMPT_POLICY

namespace {

struct Entry {
  const char* name;
  Status (*make)(const PolicyConfig&, PolicyStorage&, Policy*&);
};

constexpr Entry kPolicies[] = {
#define WEIR_POLICY(name) {#name, make_##name},
#include "policy/policies.inc"
#undef WEIR_POLICY
};

constexpr char kPolicyNames[] =
#define WEIR_POLICY(name) " " #name
#include "policy/policies.inc"
#undef WEIR_POLICY
    ;

struct PromptEntry {
  const char* name;
  Status (*make)(const PolicyConfig&, PolicyStorage&, Policy&, Policy*&);
};

constexpr PromptEntry kPromptPolicies[] = {
#define WEIR_PROMPT_POLICY(name) {#name, make_##name},
#include "policy/prompt_policies.inc"
#undef WEIR_PROMPT_POLICY
};

constexpr char kPromptPolicyNames[] =
#define WEIR_PROMPT_POLICY(name) " " #name
#include "policy/prompt_policies.inc"
#undef WEIR_PROMPT_POLICY
    ;

// Puts a prompt policy before `out`: the one that the options name, or the first of the list if `out` needs one.
Status put_prompt_policy(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  const char* name = nullptr;
  for (const weir_key_value& option : config.options.given) {
    if (std::strcmp(option.key, kPromptOption) == 0) name = option.value;
  }
  if (name == nullptr && !out->needs().prompt_policy)
    return refuse_options_without(kPromptOption, config.options.given);
  if (name == nullptr) {
    storage.effective.add(kPromptOption, "%s", kPromptPolicies[0].name);
    return kPromptPolicies[0].make(config, storage, *out, out);
  }
  for (const PromptEntry& entry : kPromptPolicies) {
    if (std::strcmp(entry.name, name) != 0) continue;
    if (out->needs().history.group != 0)
      return fail(WEIR_ERR_INVALID_ARG, "prompt=%.64s: this policy finds tokens by their positions, so all stay", name);
    if (out->needs().recall_slots != 0)
      return fail(WEIR_ERR_INVALID_ARG, "prompt=%.64s: with recall the whole prompt is kept", name);
    storage.effective.add(kPromptOption, "%s", name);
    return entry.make(config, storage, *out, out);
  }
  return fail(WEIR_ERR_NOT_FOUND, "no prompt policy \"%.64s\"; there are:%s", name, kPromptPolicyNames);
}

}  // namespace

Policy::Policy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale)
    : needs_(needs), rules_(rules), attn_scale_(attn_scale) {
  needs_.digest = needed_digest(rules);
  needs_.page_mass = needs_page_mass(rules);
  needs_.page_lists = rules.selects;
  needs_.list_per_head = rules.selects && rules.agg == AggMode::kQHead;
  needs_.sink_query = rules.in_cache_pos;
  needs_.last_gaps = rules.by_gap;
}

Status Policy::find_token_mass(OpContext& cx, const OpTable& ops, const KvCache& kv, const ObservePromptArgs& a) const {
  const KvView view = kv.view(a.layer);
  WEIR_TRY(ops.token_mass(cx, {.mass = a.token_mass,
                               .q = a.q,
                               .lse = a.lse,
                               .kv = view,
                               .n_rows = a.n_rows,
                               .n_heads = a.n_heads,
                               .pos = a.pos,
                               .scale = attn_scale_,
                               .window = a.window,
                               .soft_cap = a.soft_cap}));
  const uint32_t* windows = kv.head_windows(a.layer);
  for (uint32_t kv_head = 0; windows != nullptr && kv_head < view.n_kv_heads; ++kv_head) {
    const size_t n = size_t{view.capacity} * kPageTokens;
    if (windows[kv_head] != 0) std::fill_n(a.token_mass + kv_head * n, n, 0.0f);
  }
  return {};
}

uint32_t Policy::chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const {
  if (rules_.victim == VictimRule::kNever) return std::min(n_left, batch_tokens);
  return chunk_that_fits(kv, n_left, batch_tokens);
}

uint32_t Policy::in_cache_pos(const KvCache& kv, uint32_t pos) const {
  return rules_.in_cache_pos ? weir::in_cache_pos(rules_, bounded_stream(kv), pos) : pos;
}

Status Policy::admit_pin(const KvCache& kv, uint32_t first, uint32_t end) const {
  // The open page, and one that can make room for the next; with recall those that a step must be able to bring back.
  const uint32_t n_free = std::max(2u, needs_.min_unpinned);
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    const StreamView s = kv.stream(i);
    if (kv.window(i) != 0) continue;                                           // pins have no effect there
    if (uint64_t{s.n_slots} * kPageTokens >= needs_.context_tokens) continue;  // nothing ever has to leave
    uint32_t n_stay = 0;
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      const bool touched = s.first_pos[row] < end && s.first_pos[row] + s.len[row] > first;
      n_stay += touched || row < n_front_rows() || (s.flags[row] & kPageStays) != 0 ? 1u : 0u;
    }
    if (n_stay + n_free <= s.n_slots) continue;
    return fail(WEIR_ERR_BUDGET,
                "pinning positions %u..%u would leave %u of %u pages that can make room, %u are needed", first, end - 1,
                s.n_slots - std::min(s.n_slots, n_stay), s.n_slots, n_free);
  }
  return {};
}

uint32_t budget_pages(const PolicyConfig& config, uint32_t context_tokens) {
  const uint32_t whole = whole_pages(context_tokens);
  return config.budget_tokens == 0 ? whole : std::min(whole, config.budget_tokens / kPageTokens);
}

uint32_t room_of(const StreamView& s, uint32_t n_front_rows) {
  uint32_t n_stay = 0;
  for (uint32_t row = 0; row < s.n_pages; ++row) {
    const bool stays = row < n_front_rows || (s.flags[row] & kPageStays) != 0 || row + 1 == s.n_pages;
    n_stay += stays && s.slots[row] != kNoSlot ? 1u : 0u;
  }
  return s.n_slots - std::min(s.n_slots, n_stay);
}

uint32_t chunk_that_fits(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) {
  const uint32_t want = std::min(n_left, batch_tokens);
  const KvShape& shape = kv.shape();
  const uint32_t n_slots = shape.recalls() ? shape.recall_slots : shape.pages_per_stream;
  if (kv.can_open(shape.last_ruled_stream(), kv.pages_to_open(want))) return want;
  const uint32_t pages = std::max(1u, n_slots / 4);
  return std::min(want, pages * kPageTokens - kv.n_tokens() % kPageTokens);
}

namespace {

// What of the needs decides which states a session can be in.
void add_needs(const PolicyNeeds& needs, NamedValues& effective) {
  effective.add("context_tokens", "%u", needs.context_tokens);
  effective.add("pages_per_stream", "%u", needs.pages_per_stream);
  effective.add("dense_layers", "%u", needs.n_wide_layers);
  effective.add("pages_per_dense_stream", "%u", needs.wide_pages);
  effective.add("recall_slots", "%u", needs.recall_slots);
  effective.add("prompt_pages", "%u", needs.prompt_pages);
  if (needs.layer_pages.differ()) {
    effective.add("layer_pages", "%u to %u", needs.layer_pages.pages(0),
                  needs.layer_pages.pages(needs.layer_pages.n_layers - 1));
  }
}

}  // namespace

Status check_rules(const char* name, const Policy& policy) {
  const PolicyNeeds& needs = policy.needs();
  const uint32_t whole = whole_pages(needs.context_tokens);
  const uint32_t least =
      needs.n_wide_layers != 0 ? std::min(needs.wide_pages, needs.pages_per_stream) : needs.pages_per_stream;
  if (policy.step_rules().victim != VictimRule::kNever || least >= whole) return {};
  return fail(WEIR_ERR_INTERNAL, "policy %s keeps %u pages of %u, but its rules for a step let none leave", name, least,
              whole);
}

const char* policy_name(uint32_t index) { return index < std::size(kPolicies) ? kPolicies[index].name : nullptr; }

Status make_policy(const char* name, const PolicyConfig& wanted, PolicyStorage& storage, Policy*& out) {
  if (name == nullptr) name = "dense";
  PolicyConfig config = wanted;
  config.options.effective = &storage.effective;
  storage.effective.clear();
  for (const Entry& entry : kPolicies) {
    if (std::strcmp(entry.name, name) != 0) continue;
    storage.effective.add("policy", "%s", name);
    storage.effective.add("budget_tokens", "%u", config.budget_tokens);
    WEIR_TRY(entry.make(config, storage, out));
    Status status = check_rules(name, *out);
    if (status.ok()) status = read_heads(config, out->needs(), storage.windows);
    if (status.ok()) status = put_prompt_policy(config, storage, out);
    if (status.ok()) add_needs(out->needs(), storage.effective);
    if (status.ok() && storage.effective.is_cut())
      status = fail(WEIR_ERR_INTERNAL, "policy %s: its options are too long to note", name);
    if (!status.ok()) {
      out->~Policy();
      out = nullptr;
    }
    return status;
  }
  return fail(WEIR_ERR_NOT_FOUND, "no policy \"%.64s\"; there are:%s", name, kPolicyNames);
}

}  // namespace weir
