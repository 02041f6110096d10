// The RaaS policy's class: what a policy that keeps milestones of the decode part builds on (raas.cpp has the method).
#pragma once

#include "policy/pinned_prompt.h"

namespace weir {

struct RaasOptions {
  uint32_t rule = 1;    // StampRule: kAlpha
  float r = 0.5f;       // kTopR: of the ranked pages, stamped each step; the paper's 50 %
  float alpha = 0.99f;  // of the exact mass: a page that one head reads from, and nothing less
  uint32_t exact_mass = 1;
  DigestKind digest = DigestKind::kMinMax;  // the paper's, for stamps from digests
  float spread = 1.0f;                      // for kMeanStd
  uint32_t rank_all = 0;
  RecentPages protect = {0, 0.5625f};  // of the pages that can leave (docs/papers.md has the measurements)
  PinnedPromptOptions pinned;
};

// Reads the options that every such policy has: those of the stamps and of the protected pages.
Status read_raas_options(OptionReader& options, RaasOptions& o);

class RaasPolicy : public PinnedPromptPolicy {
 public:
  RaasPolicy(const char* name, const PolicyNeeds& needs, const RaasOptions& o, float scale)
      : PinnedPromptPolicy(name, needs, o.pinned), o_(o), attn_scale_(scale) {}

  uint32_t victim(const StreamView& s, const RoomArgs& room) const override;
  Status observe(OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a) const override;
  void prompt_end(KvCache& kv, uint32_t first) const override;
  StepRules step_rules() const override;

 protected:
  // True when a page must leave before the next tokens come.
  virtual bool is_full(const StreamView&, const RoomArgs& room) const { return room.crowded; }
  // Pages with any of these flags do not leave now.
  virtual uint32_t staying_flags(const RoomArgs&) const { return kPageStays; }

  RaasOptions o_;
  float attn_scale_;

 private:
  void digest_weights(const KvCache& kv, uint32_t layer, uint32_t n_heads, float* score) const;
};

// The same with a selection among the prompt's pages once the prompt is too long to be kept beside min_decode_pages (hybrid.cpp). Reads the options
// of the selection; needs config.max_prompt_tokens.
Status make_raas_with_selection(const PolicyConfig& config, OptionReader& options, const RaasOptions& o,
                                PolicyStorage& storage, Policy*& out);

}  // namespace weir
