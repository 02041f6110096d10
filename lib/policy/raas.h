// The RaaS policy's class: what a policy that keeps milestones of the decode part builds on (raas.cpp has the method).
#pragma once

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {

enum class RaasOverflow : uint32_t { kAuto, kError, kExtend, kHybrid, kCompress };

struct RaasOptions {
  uint32_t rule = 1;  // StampRule: kAlpha
  float r = 0.5f;     // kTopR: of the ranked pages, stamped each step; the paper's 50 %
  float alpha =
      0.9f;  // of the exact mass: a page that one head reads from, and nothing less (docs/papers.md has the measurements)
  uint32_t exact_mass = 1;
  DigestKind digest = DigestKind::kMinMax;  // the paper's, for stamps from digests
  float spread = 1.0f;                      // for kMeanStd
  uint32_t rank_all = 0;
  uint32_t protect_recent = 0;  // pages
  RaasOverflow overflow = RaasOverflow::kAuto;
  uint32_t min_decode_pages = 4;  // the open page and three sealed ones
  bool pin_prompt = true;
};

// Pages of `budget` that are protected as recent unless an option says otherwise: a little more than half. Text is used again after some hundred tokens;
// with a quarter, as first tried, it left before that (docs/papers.md).
inline uint32_t default_protect_recent(uint32_t budget) { return budget * 9 / 16; }

// Reads the options that every such policy has, those of the stamps; `protect_recent` has its default already.
Status read_raas_options(OptionReader& options, RaasOptions& o);

class RaasPolicy : public Policy {
 public:
  RaasPolicy(const PolicyNeeds& needs, const RaasOptions& o, float scale) : o_(o), attn_scale_(scale) {
    needs_ = needs;
  }

  Status admit_prompt(const KvCache& kv, uint32_t n_tok) const override;
  uint32_t victim(const StreamView& s, const RoomArgs& room) const override;
  uint32_t chunk_tokens(const KvCache& kv, uint32_t n_left, uint32_t batch_tokens) const override;
  uint32_t prompt_flags() const override { return o_.pin_prompt ? kPagePrompt | kPagePinned : kPagePrompt; }
  bool can_take_back_prompt() const override { return o_.pin_prompt; }
  Status observe(OpContext& cx, const OpTable& ops, KvCache& kv, const ObserveArgs& a) const override;
  void prompt_end(KvCache& kv, uint32_t first) const override;
  StepRules step_rules() const override;

 protected:
  // True when a page must leave before the next tokens come.
  virtual bool is_full(const StreamView&, const RoomArgs& room) const { return room.crowded; }
  // Pages with any of these flags do not leave now.
  virtual uint32_t staying_flags(const RoomArgs&) const { return kPageStays; }
  // True while the context can never need an eviction.
  virtual bool holds_all() const { return uint64_t{needs_.pages_per_stream} * kPageTokens >= needs_.context_tokens; }
  // Pages of a stream that will be pinned after a prompt of n_tok more tokens, those already pinned included.
  static uint32_t pinned_after(const KvCache& kv, uint32_t n_tok);

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
