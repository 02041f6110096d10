// The class of the RaaS policy. Policies that keep pages of the answer in the same way derive from it (raas.cpp has the
// method).
#pragma once

#include "policy/pinned_prompt.h"

namespace weir {

struct RaasOptions {
  uint32_t rule = 1;  // StampRule: kAlpha
  float r = 0.5f;     // kTopR: the share of the ranked pages that a step stamps; 50 % as in the paper
  // kAlpha, 0..1: a page is stamped when a query head gives it more than this part of its attention. 0.99: only a page
  // from which the head takes nearly its whole result.
  float alpha = 0.99f;
  uint32_t exact_mass = 1;
  DigestKind digest = DigestKind::kMinMax;  // for stamps from digests; as in the paper
  float spread = 1.0f;                      // for kMeanStd
  uint32_t rank_all = 0;
  RecentPages protect = {0, 0.5625f};  // 9/16 of the pages that can leave (docs/papers.md)
  PinnedPromptOptions pinned;
};

// Reads the options that all these policies have: stamps, protected pages and min_decode_pages.
Status read_raas_options(OptionReader& options, RaasOptions& o);

class RaasPolicy : public PinnedPromptPolicy {
 public:
  RaasPolicy(const char* name, const PolicyNeeds& needs, const RaasOptions& o, float scale)
      : PinnedPromptPolicy(name, needs, o.pinned), o_(o), attn_scale_(scale) {}
  Policy* copy_to(PolicyStorage& storage) const override;

  uint32_t victim(const StreamView& s, const RoomArgs& room) const override;
  Status observe(OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a) const override;
  void prompt_end(KvCache& kv, uint32_t first) const override;
  StepRules step_rules() const override;

 protected:
  // True if a page must leave before the next tokens are appended.
  virtual bool is_full(const StreamView&, const RoomArgs& room) const { return room.is_full; }
  // Pages with any of these flags cannot leave now.
  virtual uint32_t staying_flags(const RoomArgs&) const { return kPageStays; }

  RaasOptions o_;
  float attn_scale_;

 private:
  void digest_weights(const KvCache& kv, uint32_t layer, uint32_t n_heads, float* score) const;
};

// RaaS whose pages come back when a step wants them (raas_recall.cpp). `rho`: the share of the pool that prompt pages
// may hold; null: they have none of their own. Reads the options of recall.
Status make_raas_with_recall(const char* name, const PolicyConfig& config, OptionReader& options, RaasOptions o,
                             const float* rho, PolicyStorage& storage, Policy*& out);

// RaaS that selects among the pages of a prompt that is too long to be attended whole beside min_decode_pages
// (hybrid.cpp). Reads the options of the selection; needs config.max_prompt_tokens.
Status make_raas_with_selection(const PolicyConfig& config, OptionReader& options, const RaasOptions& o,
                                PolicyStorage& storage, Policy*& out);

}  // namespace weir
