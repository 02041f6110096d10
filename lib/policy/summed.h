// Shared code of the policies that sum up what attention gives to a page and let the page with the least leave: what a
// prompt puts into the sums, its chunks, and the budget that a recent window needs.
#pragma once

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {

// What a prompt puts into the sums.
enum class PromptSums : uint32_t {
  kExact,   // the weights of all its queries
  kWindow,  // the weights of its last queries
  kZero,    // nothing
  kHits,    // of its last queries as many as the page's mean weight is of its tokens' even share, at most all
};

struct SummedOptions {
  uint32_t recent = 0;       // tokens of the window that stays as long as another page can leave
  uint32_t skip_layers = 2;  // dense layers, as in the Quest paper's comparison
  PromptSums prompt = PromptSums::kExact;
  uint32_t rows = 0;  // kWindow, kHits: queries
};

class SummedPolicy final : public Policy {
 public:
  SummedPolicy(const PolicyNeeds& needs, const StepRules& rules, float attn_scale, PromptSums prompt)
      : Policy(needs, rules, attn_scale), prompt_(prompt) {}
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) SummedPolicy(*this); }
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override;
  Status observe_prompt(OpContext& cx, const OpTable& ops, KvCache& kv, const ObservePromptArgs& a) const override;
  void prompt_end(KvCache& kv, uint32_t first) const override;

 private:
  PromptSums prompt_;
};

// Reads "recent" and "skip_layers"; o.recent is what it is without options.
Status read_summed(const PolicyConfig& config, OptionReader& options, SummedOptions& o);
// Puts the policy: `rules` says how it observes; the victim, the window and the layers are added. `policy` is a name.
Status make_summed(const char* policy, const PolicyConfig& config, const SummedOptions& o, StepRules rules,
                   PolicyStorage& storage, Policy*& out);

}  // namespace weir
