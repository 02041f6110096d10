// The rules that policies may have and kernels follow, made from rules.inc, and sets of them: what a backend computes.
// docs/algorithms.md has the equations.
#pragma once

#include <cstdint>

namespace weir {

enum class VictimRule : uint8_t {
#define WEIR_VICTIM_RULE(Name, number) k##Name = number,
#include "ops/rules.inc"
};
enum class ObserveRule : uint8_t {
#define WEIR_OBSERVE_RULE(Name, number) k##Name = number,
#include "ops/rules.inc"
};
enum class StampRule : uint8_t {
#define WEIR_STAMP_RULE(Name, number) k##Name = number,
#include "ops/rules.inc"
};
enum class AccumulateRule : uint8_t {
#define WEIR_ACCUMULATE_RULE(Name, number) k##Name = number,
#include "ops/rules.inc"
};
enum class AggMode : uint8_t {
#define WEIR_AGG_MODE(Name, number) k##Name = number,
#include "ops/rules.inc"
};
enum class DigestKind : uint8_t {
#define WEIR_DIGEST_KIND(Name, number) k##Name = number,
#include "ops/rules.inc"
};

namespace rule_values {
inline constexpr const char* kNames[] = {
#define WEIR_VICTIM_RULE(Name, number) "VictimRule::k" #Name,
#define WEIR_OBSERVE_RULE(Name, number) "ObserveRule::k" #Name,
#define WEIR_STAMP_RULE(Name, number) "StampRule::k" #Name,
#define WEIR_ACCUMULATE_RULE(Name, number) "AccumulateRule::k" #Name,
#define WEIR_AGG_MODE(Name, number) "AggMode::k" #Name,
#define WEIR_DIGEST_KIND(Name, number) "DigestKind::k" #Name,
#include "ops/rules.inc"
};
inline constexpr uint32_t kCount = sizeof(kNames) / sizeof(kNames[0]);
inline constexpr uint32_t kObserve = WEIR_VICTIM_RULES, kStamp = kObserve + WEIR_OBSERVE_RULES,
                          kAccumulate = kStamp + WEIR_STAMP_RULES, kAgg = kAccumulate + WEIR_ACCUMULATE_RULES,
                          kDigest = kAgg + WEIR_AGG_MODES;
// The counts are right, and the numbers of a rule's values are 0, 1, 2 and so on.
inline constexpr uint32_t kNumbers[] = {
#define WEIR_VICTIM_RULE(Name, number) number,
#define WEIR_OBSERVE_RULE(Name, number) kObserve + number,
#define WEIR_STAMP_RULE(Name, number) kStamp + number,
#define WEIR_ACCUMULATE_RULE(Name, number) kAccumulate + number,
#define WEIR_AGG_MODE(Name, number) kAgg + number,
#define WEIR_DIGEST_KIND(Name, number) kDigest + number,
#include "ops/rules.inc"
};
constexpr bool are_in_order() {
  for (uint32_t i = 0; i < kCount; ++i) {
    if (kNumbers[i] != i) return false;
  }
  return kCount == kDigest + WEIR_DIGEST_KINDS;
}
static_assert(are_in_order() && kCount <= 64);
}  // namespace rule_values

// A value of any rule, by its number among all values.
struct RuleValue {
  constexpr RuleValue(VictimRule value) : index(static_cast<uint32_t>(value)) {}
  constexpr RuleValue(ObserveRule value) : index(rule_values::kObserve + static_cast<uint32_t>(value)) {}
  constexpr RuleValue(StampRule value) : index(rule_values::kStamp + static_cast<uint32_t>(value)) {}
  constexpr RuleValue(AccumulateRule value) : index(rule_values::kAccumulate + static_cast<uint32_t>(value)) {}
  constexpr RuleValue(AggMode value) : index(rule_values::kAgg + static_cast<uint32_t>(value)) {}
  constexpr RuleValue(DigestKind value) : index(rule_values::kDigest + static_cast<uint32_t>(value)) {}
  uint32_t index;
};

// What the rules of accumulation depend on besides attention.
struct AccumulateOptions {
  // kNoisy: the noise, and the temperature, which rises from tau to tau_end over the first tau_tokens tokens
  uint32_t seed = 0;
  float tau = 1.0f, tau_end = 1.0f;
  uint32_t tau_tokens = 1;
  float keep = 1.0f;  // kHits: what a step leaves of a score
};

// The temperature of the step whose token is the n-th, from 1 on.
constexpr float tau_at(const AccumulateOptions& o, uint32_t n) {
  const float share = n < o.tau_tokens ? static_cast<float>(n) / static_cast<float>(o.tau_tokens) : 1.0f;
  return o.tau + (o.tau_end - o.tau) * share;
}

// The rules that a backend computes (Backend::rules), or that a policy has (rules_in, policy/rules.h).
class RuleSet {
 public:
  constexpr RuleSet() = default;
  static constexpr RuleSet all() {
    RuleSet set;
    set.bits_ = (uint64_t{1} << rule_values::kCount) - 1;
    return set;
  }
  constexpr RuleSet with(RuleValue value) const { return RuleSet(bits_ | bit(value)); }
  constexpr RuleSet without(RuleValue value) const { return RuleSet(bits_ & ~bit(value)); }
  constexpr bool has(RuleValue value) const { return (bits_ & bit(value)) != 0; }
  // The name of a rule that is here and not in `other`; null: there is none.
  constexpr const char* first_not_in(const RuleSet& other) const {
    for (uint32_t i = 0; i < rule_values::kCount; ++i) {
      if ((bits_ & ~other.bits_ & uint64_t{1} << i) != 0) return rule_values::kNames[i];
    }
    return nullptr;
  }

 private:
  constexpr explicit RuleSet(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t bit(RuleValue value) { return uint64_t{1} << value.index; }
  uint64_t bits_ = 0;
};

}  // namespace weir
