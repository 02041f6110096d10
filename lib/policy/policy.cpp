// The registry of policies and what they share.
#include "policy/policy.h"

#include <algorithm>
#include <cstring>

namespace weir {

#define WEIR_POLICY(name) Status make_##name(const PolicyConfig& config, PolicyStorage& storage, Policy*& out);
#include "policy/policies.inc"
#undef WEIR_POLICY

namespace {

struct Entry {
  const char* name;
  Status (*make)(const PolicyConfig&, PolicyStorage&, Policy*&);
};

constexpr Entry kPolicies[] = {
#define WEIR_POLICY(name) {#name, make_##name},
#include "policy/policies.inc"
#undef WEIR_POLICY
};

constexpr char kPolicyNames[] =
#define WEIR_POLICY(name) " " #name
#include "policy/policies.inc"
#undef WEIR_POLICY
    ;

}  // namespace

uint32_t Policy::chunk_tokens(const KvCache&, uint32_t n_left, uint32_t batch_tokens) const { return std::min(n_left, batch_tokens); }

uint32_t budget_pages(const PolicyConfig& config, uint32_t context_tokens) {
  const uint32_t whole = (context_tokens - 1) / kPageTokens + 1;
  return config.budget_tokens == 0 ? whole : std::min(whole, config.budget_tokens / kPageTokens);
}

Status make_policy(const char* name, const PolicyConfig& config, PolicyStorage& storage, Policy*& out) {
  if (name == nullptr) name = "dense";
  for (const Entry& entry : kPolicies) {
    if (std::strcmp(entry.name, name) == 0) return entry.make(config, storage, out);
  }
  return fail(WEIR_ERR_NOT_FOUND, "no policy \"%.64s\"; there are:%s", name, kPolicyNames);
}

}  // namespace weir
