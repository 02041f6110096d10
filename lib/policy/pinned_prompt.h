// Shared code of the policies that pin the prompt and let pages of the answer leave: how much of a stream a prompt may
// take, what happens to a longer prompt, and how many pages a session needs.
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
  bool stamps = false;  // at its end, the pages of a prompt get the step's stamp
};

class PinnedPromptPolicy : public Policy {
 public:
  // `name` is a string literal.
  PinnedPromptPolicy(const char* name, const PolicyNeeds& needs, const StepRules& rules, float attn_scale,
                     const PinnedPromptOptions& o)
      : Policy(needs, rules, attn_scale), name_(name), pinned_(o) {}
  Policy* copy_to(PolicyStorage& storage) const override;
  Status admit_prompt(const KvCache& kv, uint32_t n_tok) const override;
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override;
  uint32_t prompt_flags() const override { return pinned_.pin_prompt ? kPagePrompt | kPagePinned : kPagePrompt; }
  bool can_take_back_prompt() const override { return pinned_.pin_prompt || rules_.recalls; }
  void prompt_end(KvCache& kv, uint32_t first) const override;

 protected:
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
