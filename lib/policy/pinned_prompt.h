// Shared code of the policies that pin the prompt and let pages of the answer leave: how much of a stream a prompt may
// take, what happens to a longer prompt, and how many pages a session needs. A policy derives from PinnedPromptPolicy
// and decides which page leaves.
#pragma once

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {

// What happens to a prompt that is too long to be pinned beside min_decode_pages. kAuto means kCompress: there is no
// store from which pages that have left could return.
enum class PromptOverflow : uint32_t { kAuto, kError, kExtend, kCompress, kHybrid };

struct PinnedPromptOptions {
  bool pin_prompt = true;
  uint32_t min_decode_pages = 4;  // the open page and three sealed pages
  PromptOverflow overflow = PromptOverflow::kAuto;
};

class PinnedPromptPolicy : public Policy {
 public:
  Status admit_prompt(const KvCache& kv, uint32_t n_tok) const override;
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override;
  uint32_t prompt_flags() const override { return pinned_.pin_prompt ? kPagePrompt | kPagePinned : kPagePrompt; }
  bool can_take_back_prompt() const override { return pinned_.pin_prompt; }

 protected:
  // `name` is a string literal.
  PinnedPromptPolicy(const char* name, const PolicyNeeds& needs, const PinnedPromptOptions& o)
      : name_(name), pinned_(o) {
    needs_ = needs;
  }
  // True if the table holds the whole context, so that no page ever has to leave.
  virtual bool holds_all() const { return uint64_t{needs_.pages_per_stream} * kPageTokens >= needs_.context_tokens; }
  // The most pages of any stream that are pinned after a prompt of n_tok more tokens, including those pinned now.
  static uint32_t pinned_after(const KvCache& kv, uint32_t n_tok);

  const char* name_;
  PinnedPromptOptions pinned_;
};

// Reads "pin_prompt" and "overflow"; `with_hybrid` allows overflow=hybrid.
Status read_pinned_prompt(OptionReader& options, bool with_hybrid, PinnedPromptOptions& o);

// Sets the context, the pages of a stream, and the limits for a prompt policy. Fails with WEIR_ERR_BUDGET, naming the
// least budget.
Status plan_pinned_prompt(const char* policy, const PolicyConfig& config, const PinnedPromptOptions& o,
                          PolicyNeeds& needs);

}  // namespace weir
