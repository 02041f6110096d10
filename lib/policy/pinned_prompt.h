// What policies share that pin the prompt and let pages of the answer leave: how much of a stream a prompt may take, what becomes of one that is
// too long for that, and how many pages a session needs. A policy derives from PinnedPromptPolicy and says which page leaves.
#pragma once

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {

// A prompt too long to be pinned beside min_decode_pages. Without a store for pages that have left, kAuto means kCompress.
enum class PromptOverflow : uint32_t { kAuto, kError, kExtend, kCompress, kHybrid };

struct PinnedPromptOptions {
  bool pin_prompt = true;
  uint32_t min_decode_pages = 4;  // the open page and three sealed ones
  PromptOverflow overflow = PromptOverflow::kAuto;
};

class PinnedPromptPolicy : public Policy {
 public:
  Status admit_prompt(const KvCache& kv, uint32_t n_tok) const override;
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override;
  uint32_t prompt_flags() const override { return pinned_.pin_prompt ? kPagePrompt | kPagePinned : kPagePrompt; }
  bool can_take_back_prompt() const override { return pinned_.pin_prompt; }

 protected:
  // `name` is static.
  PinnedPromptPolicy(const char* name, const PolicyNeeds& needs, const PinnedPromptOptions& o)
      : name_(name), pinned_(o) {
    needs_ = needs;
  }
  // True while the context can never need an eviction.
  virtual bool holds_all() const { return uint64_t{needs_.pages_per_stream} * kPageTokens >= needs_.context_tokens; }
  // Pages of a stream that will be pinned after a prompt of n_tok more tokens, those already pinned included.
  static uint32_t pinned_after(const KvCache& kv, uint32_t n_tok);

  const char* name_;
  PinnedPromptOptions pinned_;
};

// "pin_prompt" and "overflow", the latter with hybrid among its words when `with_hybrid`.
Status read_pinned_prompt(OptionReader& options, bool with_hybrid, PinnedPromptOptions& o);

// Context and pages of a stream, and what the prompt policy has to keep to. Fails with WEIR_ERR_BUDGET naming the least budget.
Status plan_pinned_prompt(const char* policy, const PolicyConfig& config, const PinnedPromptOptions& o,
                          PolicyNeeds& needs);

}  // namespace weir
