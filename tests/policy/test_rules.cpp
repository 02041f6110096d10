// policy: the lists of rules (lib/ops/rules.inc), and what is said of a backend that lacks one. What the rules do is in
// the tests of the policies, and for devices in tests/cuda/test_victim.cpp and tests/vulkan.
#include "policy/rules.h"

#include <cstring>
#include <set>
#include <string>

#include "cpu/backend.h"
#include "tests/policy/policy_test.h"

namespace {

using namespace weir;
using namespace weir::test;

void rules__every_value_has_a_number_and_a_name_of_its_own(void**) {
  std::set<std::string> names(std::begin(rule_values::kNames), std::end(rule_values::kNames));
  assert_int_equal(names.size(), rule_values::kCount);
  assert_string_equal(rule_values::kNames[RuleValue(VictimRule::kNever).index], "VictimRule::kNever");
  assert_string_equal(rule_values::kNames[RuleValue(VictimRule::kCold).index], "VictimRule::kCold");
  assert_string_equal(rule_values::kNames[RuleValue(ObserveRule::kNone).index], "ObserveRule::kNone");
  assert_string_equal(rule_values::kNames[RuleValue(StampRule::kAlpha).index], "StampRule::kAlpha");
  assert_string_equal(rule_values::kNames[RuleValue(AccumulateRule::kSum).index], "AccumulateRule::kSum");
  assert_string_equal(rule_values::kNames[RuleValue(AggMode::kMaxZ).index], "AggMode::kMaxZ");
  assert_string_equal(rule_values::kNames[RuleValue(DigestKind::kMeanStd).index], "DigestKind::kMeanStd");
}

// A backend need not have what the rules leave unused.
void rules__a_backend_is_refused_by_the_name_of_what_it_lacks(void**) {
  StepRules selects;
  selects.selects = true;
  selects.agg = AggMode::kMaxZ;
  selects.digest = DigestKind::kSphereMean;
  StepRules stamps;
  stamps.victim = VictimRule::kStalest;
  stamps.observe = ObserveRule::kStampMass;
  stamps.stamp_rule = StampRule::kTopR;
  StepRules sums;
  sums.victim = VictimRule::kLightest;
  sums.observe = ObserveRule::kAccumulate;
  sums.accumulate = AccumulateRule::kLatestLayer;
  const struct {
    const StepRules& rules;
    RuleValue lacks;
    bool runs;
  } cases[] = {
      {selects, AggMode::kMaxZ, false},           {selects, DigestKind::kSphereMean, false},
      {selects, AggMode::kMaxRaw, true},          {selects, DigestKind::kCentroid, true},
      {stamps, VictimRule::kStalest, false},      {stamps, ObserveRule::kStampMass, false},
      {stamps, StampRule::kTopR, false},          {stamps, AccumulateRule::kSum, true},
      {stamps, AggMode::kMaxProb, true},          {sums, AccumulateRule::kLatestLayer, false},
      {sums, AccumulateRule::kLatestGroup, true}, {sums, StampRule::kTopR, true},
  };
  for (const auto& c : cases) {
    const Status status = check_backend_rules(c.rules, RuleSet::all().without(c.lacks), "abacus");
    assert_int_equal(status.code(), c.runs ? WEIR_OK : WEIR_ERR_UNSUPPORTED);
    if (c.runs) continue;
    const char* name = rule_values::kNames[c.lacks.index];
    if (std::strstr(last_error_text(), name) == nullptr || std::strstr(last_error_text(), "abacus") == nullptr)
      fail_msg("\"%s\" without \"%s\"", last_error_text(), name);
  }
  assert_int_equal(check_backend_rules({}, RuleSet(), "abacus").code(), WEIR_ERR_UNSUPPORTED);  // it lists nothing
  for (const Backend* backend : {&reference_backend(), &cpu_backend()})
    assert_true(check_backend_rules(sums, backend->rules, backend->name).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rules__every_value_has_a_number_and_a_name_of_its_own),
      cmocka_unit_test(rules__a_backend_is_refused_by_the_name_of_what_it_lacks),
  };
  return cmocka_run_group_tests_name("policy_rules", tests, nullptr, nullptr);
}
