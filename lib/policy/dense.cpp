// Dense attention: every token stays, and every step attends all of them. The other policies are tested against it.
// A budget makes the context smaller; nothing is evicted.
#include <new>

#include "policy/options.h"
#include "policy/policy.h"

namespace weir {
namespace {

class DensePolicy final : public Policy {
 public:
  explicit DensePolicy(const PolicyNeeds& needs) { needs_ = needs; }
  Policy* copy_to(PolicyStorage& storage) const override { return new (storage.bytes) DensePolicy(*this); }
  // The context is at most what the pages hold, so a prompt that passes the context check fits.
  Status admit_prompt(const KvCache&, uint32_t) const override { return {}; }
  uint32_t victim(const StreamView&, const RoomArgs&) const override { return kNone; }
  bool can_take_back_prompt() const override { return true; }
  StepRules step_rules() const override { return {}; }  // nothing leaves, everything is attended
};

}  // namespace

Status make_dense(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  OptionReader options("dense", config.options);
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  needs.context_tokens = config.context_tokens != 0 ? config.context_tokens : config.trained_tokens;
  needs.pages_per_stream = budget_pages(config, needs.context_tokens);
  const uint64_t held = uint64_t{needs.pages_per_stream} * kPageTokens;
  if (held < needs.context_tokens) needs.context_tokens = static_cast<uint32_t>(held);
  static_assert(sizeof(DensePolicy) <= sizeof(storage.bytes));
  out = new (storage.bytes) DensePolicy(needs);
  return {};
}

}  // namespace weir
