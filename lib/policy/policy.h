// What a sparse policy is: it declares its needs and answers which page leaves, which pages are attended and what was observed. It never owns a
// cache: residency, accounting and rollback are lib/kv's. A new policy is one file here and one line in policies.inc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "kv/kv_cache.h"
#include "ops/ops.h"
#include "weir/base.h"

namespace weir {

// What a policy is configured from. Numbers are checked: context_tokens >= 1, budget_tokens 0 or >= 2 pages.
struct PolicyConfig {
  uint32_t n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  uint32_t context_tokens = 0;     // wanted by the caller, 0 when he said nothing
  uint32_t trained_tokens = 0;     // of the model
  uint32_t budget_tokens = 0;      // per stream; 0: none, the whole context
  uint32_t max_prompt_tokens = 0;
  float attn_scale = 1.0f;
  std::span<const weir_key_value> options;
};

// Filled by the factory: what plan and session must provide.
struct PolicyNeeds {
  uint32_t context_tokens = 0;    // most positions
  uint32_t pages_per_stream = 0;  // table capacity
  bool digests = false;           // MINMAX digest per page
  bool page_mass = false;         // exact page masses from attention
  bool sink_query = false;        // a second query, rotated to in-cache positions, for the first sink_pages rows
};

// How attention is restricted in a step; see AttnPagedArgs.
struct AttnScope {
  uint32_t n_sink_pages = 0;
  uint32_t n_sink = 0;
  uint32_t window = 0;
};

// Scratch of `observe`, [n_heads, pages_per_stream] each.
struct ObserveArgs {
  uint32_t layer;
  uint32_t n_heads;
  const float* q;      // [n_heads, head_dim] rotated query of the step
  float* page_mass;    // exact masses, when asked for
  float* page_score;   // free to use
  uint32_t now;        // tokens, the current one included
};

class Policy {
 public:
  virtual ~Policy() = default;
  const PolicyNeeds& needs() const { return needs_; }

  // Before a prompt of n_tok tokens changes anything: can all of it be held? The error says how many tokens could.
  virtual Status admit_prompt(const KvCache& kv, uint32_t n_tok) const = 0;
  // Tokens of the next prefill chunk, 1..n_left; `batch_tokens` is the workspace's limit.
  virtual uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const;
  // The row that must leave stream `s` before tokens from position `pos` on are appended, or kNone. Asked before every chunk and step and after a
  // prompt, again until it says kNone. `crowded`: the stream lacks free rows.
  virtual uint32_t victim(const StreamView& s, uint32_t pos, bool crowded) const = 0;
  // Flags of pages that take prompt tokens.
  virtual uint32_t prompt_flags() const { return kPagePrompt; }
  // True when a prompt can be taken back although pages left during the call, because none of them was the prompt's own or needed by it.
  virtual bool can_take_back_prompt() const { return false; }
  virtual AttnScope attn_scope() const { return {}; }
  // In-cache position of the query at `pos` (only with needs().sink_query).
  virtual uint32_t in_cache_pos(const KvCache&, uint32_t pos) const { return pos; }
  // After the attention of one layer in a decode step.
  virtual Status observe(OpContext&, const OpTable&, KvCache&, const ObserveArgs&) const { return {}; }
  // After the last chunk of a prompt whose first token is at position `first`.
  virtual void prompt_end(KvCache&, [[maybe_unused]] uint32_t first) const {}

  static constexpr uint32_t kNone = UINT32_MAX;

 protected:
  PolicyNeeds needs_;
};

// Room for any policy object, so that neither planning nor sessions allocate for one.
struct PolicyStorage {
  alignas(16) std::byte bytes[256];
};

// Builds the policy `name` (null: dense) in `storage`. Errors: WEIR_ERR_NOT_FOUND listing the names or options there are,
// WEIR_ERR_INVALID_ARG, WEIR_ERR_BUDGET naming the minimum, WEIR_ERR_UNSUPPORTED.
Status make_policy(const char* name, const PolicyConfig& config, PolicyStorage& storage, Policy*& out);

// Pages of a budget: floor, at least two (algorithms 1.13), and not more than the context needs.
uint32_t budget_pages(const PolicyConfig& config, uint32_t context_tokens);

}  // namespace weir
