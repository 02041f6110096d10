// The interface of sparse policies. A policy declares what it needs, and decides which page leaves and which pages a
// step attends; it observes attention for that. It never owns a cache: residency, accounting and rollback are in
// lib/kv. docs/contributing.md says how to add one. Prompt policies decide what of a prompt stays and stand before
// another policy; they are listed in prompt_policies.inc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>

#include "core/status.h"
#include "kv/kv_cache.h"
#include "kv/stream_pages.h"
#include "ops/step_rules.h"
#include "ops/types.h"
#include "policy/options.h"
#include "policy/rules.h"
#include "weir/base.h"

namespace weir {

// What a policy is made from. The numbers have been checked: the context is at least 1 token, and budget_tokens is 0 or
// at least two pages.
struct PolicyConfig {
  uint32_t n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t context_tokens = 0;  // what the caller wants; 0: not given
  uint32_t trained_tokens = 0;  // of the model
  uint32_t global_every = 0;    // all layers but every global_every-th have a window of their own; 0: none has
  uint32_t budget_tokens = 0;   // per stream; 0: no budget, the whole context
  uint32_t max_prompt_tokens = 0;
  float attn_scale = 1.0f;
  OptionList options;
  // The bytes of the file that the option heads_file names, and its path; empty without the option.
  std::string_view head_file;
  const char* head_file_path = "";
};

// What the plan and the session must provide. Filled by the factory, but for the fields that follow from the rules.
struct PolicyNeeds {
  uint32_t context_tokens = 0;    // most positions
  uint32_t pages_per_stream = 0;  // table capacity
  uint32_t n_wide_layers = 0;     // the first layers, left dense by the policy, hold wide_pages instead
  uint32_t wide_pages = 0;
  // With recall: most pages of a stream in the pool; pages_per_stream is then the context. 0: pages that leave are
  // gone.
  uint32_t recall_slots = 0;
  bool may_recall = false;    // in a smaller pool it would
  bool one_pool = false;      // with recall: recall_slots is a mean; see KvShape
  uint32_t fetch_pages = 0;   // > 0: attention asks for pages, at most this many of a stream at once
  uint32_t min_unpinned = 2;  // slots of a stream that pins of the application must leave
  // These follow from the rules.
  DigestKind digest = DigestKind::kNone;
  bool page_mass = false;      // exact page masses from attention
  bool page_lists = false;     // a step lists pages; masses are then in list order
  bool list_per_head = false;  // one list per query head instead of one per KV head
  bool sink_query = false;     // a second query, rotated to in-cache positions, for the first rows

  // Number of last query rows of every prompt chunk whose attention observe_prompt observes; kAllRows: all.
  uint32_t prompt_rows = 0;
  bool row_lse = false;        // attention gives the log-sum-exp of every row; said by the session's plan
  // Some streams have windows of their own (the option heads). Set in what a device is asked about alone
  // (DeviceModule::check_session).
  bool head_windows = false;
  bool last_gaps = false;      // the table has last_gap
  bool prompt_scores = false;  // the table has prompt_score, a score per page for a prompt policy
  // Attention learns from its past: the tables' sizes but for n_layers, and the first layer that has them.
  HistoryShape history;
  uint32_t history_from_layer = 0;
  LayerPages layer_pages;     // table capacities by layer; pages_per_stream is then their mean
  bool heads_differ = false;  // heads of a layer keep different numbers of pages
  uint32_t prompt_pages = 0;  // most prompt pages of a stream that may stay; 0: as many as the table has rows
  // Prompts must be reduced to prompt_pages by a prompt policy, even if the caller named none.
  bool prompt_policy = false;
  static constexpr uint32_t kAllRows = UINT32_MAX;
};

struct ObservePromptArgs {
  uint32_t layer;
  uint32_t n_heads;
  const float* q;    // [n_rows, n_heads, head_dim] rotated queries of the chunk's last rows
  const float* lse;  // [n_rows, n_heads]
  uint32_t n_rows;
  uint32_t pos;         // position of the first of them
  uint32_t n_left;      // prompt tokens after this chunk
  float* token_mass;    // scratch [n_kv_heads, capacity * kPageTokens]
  uint32_t window = 0;  // this and the next are the layer's own; see TokenMassArgs
  float soft_cap = 0.0f;
};

struct PolicyStorage;

// What happens in a decode step is what the rules say (policy/rules.h), here and in the kernels of devices. A class of
// its own is for a policy that treats prompts or pins in its own way.
class Policy {
 public:
  virtual ~Policy() = default;
  const PolicyNeeds& needs() const { return needs_; }
  const StepRules& step_rules() const { return rules_; }
  // A policy that decides as this one does, in the storage of another session.
  virtual Policy* copy_to(PolicyStorage& storage) const = 0;

  // Asked before a prompt of n_tok tokens, which the context has room for, changes anything: can the session take it?
  // The error says how many tokens it could take, or how many pages are missing.
  virtual Status admit_prompt(const KvCache&, [[maybe_unused]] uint32_t n_tok) const { return {}; }
  // Tokens of the next prefill chunk, 1..n_left; `batch_tokens` is the workspace's limit.
  virtual uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const;
  // The row that must leave stream `s` before tokens are appended, or kNone. Asked before every chunk, before every
  // step and after a prompt, and each time again until it returns kNone.
  virtual uint32_t victim(const StreamView& s, const RoomArgs& room) const { return choose_victim(rules_, s, room); }
  // Flags of the pages that hold prompt tokens.
  virtual uint32_t prompt_flags() const { return kPagePrompt; }
  // True if a prompt can be taken back even when pages have left during the call, as long as none of them was a prompt
  // page.
  virtual bool can_take_back_prompt() const { return true; }
  // Number of first rows that never leave, whatever their flags.
  uint32_t n_front_rows() const { return front_rows(rules_); }
  // Asked before the application pins the positions [first, end): can enough pages still leave?
  virtual Status admit_pin(const KvCache& kv, uint32_t first, uint32_t end) const;
  // In-cache position of the query at `pos` (only with needs().sink_query).
  uint32_t in_cache_pos(const KvCache& kv, uint32_t pos) const;
  // Selects the pages that a decode step attends in one layer; leaves `lists` unchanged when it attends all.
  Status select(OpContext& cx, const OpTable& ops, KvCache& kv, const SelectArgs& a, PageLists& lists) const {
    return select_pages(rules_, attn_scale_, cx, ops, kv, a, lists);
  }
  // Called after the attention of one layer in a decode step.
  Status observe(OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a) const {
    return observe_pages(rules_, attn_scale_, cx, ops, kv, a);
  }
  // Called after the attention of one layer over a prompt chunk (only with needs().prompt_rows).
  virtual Status observe_prompt(OpContext&, const OpTable&, KvCache&, const ObservePromptArgs&) const { return {}; }
  // With needs().history: what attention among n tokens behind the sinks may cost, and its rules.
  virtual HistorySize history_size([[maybe_unused]] uint32_t n) const { return {}; }
  virtual HistoryRules history_rules() const { return {}; }
  // Called after the last chunk of a prompt whose first token is at position `first`, and after the evictions of
  // Phase::kPromptEnd.
  virtual void prompt_end(KvCache&, [[maybe_unused]] uint32_t first) const {}

  static constexpr uint32_t kNone = kNoRow;

 protected:
  Policy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale);
  // What the rows of a prompt chunk give to each token of the layer's pages, into a.token_mass. 0 in streams with
  // windows of their own, which no policy rules: a.lse has none of what their windows hide.
  Status find_token_mass(OpContext& cx, const OpTable& ops, const KvCache& kv, const ObservePromptArgs& a) const;

  PolicyNeeds needs_;
  StepRules rules_;
  float attn_scale_;
};

// Memory for a policy object and a prompt policy before it, so that neither plans nor sessions allocate for them; and
// what a saved session must have in common with one that it is restored into: name, sizes, and every option with the
// value that it came to have.
struct PolicyStorage {
  alignas(16) std::byte bytes[384];
  alignas(16) std::byte prompt_bytes[384];
  StreamWindows windows;  // streams that the policy does not rule
  NamedValues effective;
};

// Puts a policy into a session's storage.
template <class P, class... Args>
void put_policy(PolicyStorage& storage, Policy*& out, const Args&... args) {
  static_assert(sizeof(P) <= sizeof(storage.bytes));
  out = new (storage.bytes) P(args...);
}

// A policy that is nothing but its rules.
class RulesPolicy final : public Policy {
 public:
  RulesPolicy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale) : Policy(needs, rules, attn_scale) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) RulesPolicy(*this); }
};

// Builds the policy `name` (null: dense) in `storage`, behind the prompt policy that the option "prompt" names, and
// says which streams are not its own because of the option "heads". Errors:
// WEIR_ERR_NOT_FOUND listing the names or options that exist, WEIR_ERR_INVALID_ARG, WEIR_ERR_BUDGET naming the minimum,
// WEIR_ERR_UNSUPPORTED.
Status make_policy(const char* name, const PolicyConfig& config, PolicyStorage& storage, Policy*& out);
// null behind the last
const char* policy_name(uint32_t index);

// If no page leaves by the rules, the tables must hold the whole context. WEIR_ERR_INTERNAL otherwise. make_policy
// checks every policy.
Status check_rules(const char* name, const Policy& policy);

// Pages of a budget, rounded down, and not more than the context needs (docs/algorithms.md, "Budgets").
uint32_t budget_pages(const PolicyConfig& config, uint32_t context_tokens);
inline uint32_t whole_pages(uint32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }
// The context of a session.
inline uint32_t context_of(const PolicyConfig& config) {
  return config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
}

// A stream of a layer that the policy rules; if there is none, the layer's first.
inline uint32_t ruled_stream(const KvCache& kv, uint32_t layer) {
  const uint32_t first = layer * kv.shape().n_kv_heads;
  for (uint32_t s = first; s < first + kv.shape().n_kv_heads; ++s) {
    if (kv.window(s) == 0) return s;
  }
  return first;
}

// A stream that stands for all that the budget and the policy rule.
inline StreamView bounded_stream(const KvCache& kv) { return kv.stream(kv.shape().last_ruled_stream()); }

// Number of pages that a stream can open at once if every page leaves that may.
uint32_t room_of(const StreamView& s, uint32_t n_front_rows);

// Tokens of the next prompt chunk for policies that evict prompt pages while a prompt is read. If the chunk fits
// without evictions, it is as long as the caller allows; else it opens at most a quarter of the table's pages, so that
// neither its own first pages leave nor those that its rows need most.
uint32_t chunk_that_fits(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens);

}  // namespace weir
