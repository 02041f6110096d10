// Dense attention: every token stays, and every step attends all of them. The other policies are tested against it.
// A budget makes the context smaller; nothing is evicted.
#include "policy/options.h"
#include "policy/policy.h"

namespace weir {
Status make_dense(const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  OptionReader options("dense", config.options);
  WEIR_TRY(options.finish());
  PolicyNeeds needs;
  needs.context_tokens = context_of(config);
  needs.pages_per_stream = budget_pages(config, needs.context_tokens);
  const uint64_t held = uint64_t{needs.pages_per_stream} * kPageTokens;
  if (held < needs.context_tokens) needs.context_tokens = static_cast<uint32_t>(held);
  put_policy<RulesPolicy>(storage, out, needs, StepRules(), config.attn_scale);  // nothing leaves, all is attended
  return {};
}

}  // namespace weir
