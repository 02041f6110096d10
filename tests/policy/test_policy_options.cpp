// policy: options, budgets and presets. Every bad value has its status and a message that names the option; a budget
// that is too small is refused with a message that names one that works; presets make policies. Longer than 600 lines
// because every option of every policy is here.
#include "tests/cmocka_cpp.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "policy/presets.h"
#include "tests/policy/every_policy.h"
#include "tests/policy/policy_test.h"

namespace {

using namespace weir;
using weir::test::Made;

using Options = std::vector<weir_key_value>;

struct Spec {
  const char* name;
  uint32_t budget, context, max_prompt;
  Options options;
};

// Builds the policy for a model of four layers and throws it away; `needs` and `rules`, where given, are its own.
Status try_policy(const Spec& s, PolicyNeeds* needs = nullptr, StepRules* rules = nullptr) {
  PolicyConfig config;
  config.n_layers = 4;
  config.n_heads = 8;
  config.n_kv_heads = 2;
  config.head_dim = 64;
  config.context_tokens = s.context;
  config.trained_tokens = 4096;
  config.budget_tokens = s.budget;
  config.max_prompt_tokens = s.max_prompt;
  config.attn_scale = 0.125f;
  config.options = s.options;
  PolicyStorage storage;
  Policy* policy = nullptr;
  const Status status = make_policy(s.name, config, storage, policy);
  if (status.ok()) {
    if (needs != nullptr) *needs = policy->needs();
    if (rules != nullptr) *rules = policy->step_rules();
    policy->~Policy();
  }
  return status;
}

std::string text_of(const Spec& s) {
  std::string text = s.name;
  for (const weir_key_value& option : s.options) text += std::string(" ") + option.key + "=" + option.value;
  return text;
}

// Expects a failure with `code` and a message that contains all of `words`.
void expect_refusal(const Spec& s, weir_status code, const std::vector<const char*>& words) {
  const Status status = try_policy(s);
  if (status.code() != code)
    fail_msg("%s: status %d, not %d (%s)", text_of(s).c_str(), status.code(), code, last_error_text());
  for (const char* word : words) {
    if (std::strstr(last_error_text(), word) == nullptr)
      fail_msg("%s: \"%s\" does not say \"%s\"", text_of(s).c_str(), last_error_text(), word);
  }
}

void expect_policy(const Spec& s) {
  if (!try_policy(s).ok()) fail_msg("%s: %s", text_of(s).c_str(), last_error_text());
}

// One option whose value is no number, an unknown word or out of range: WEIR_ERR_INVALID_ARG naming policy, option and
// value.
void options__bad_values(void**) {
  const struct {
    const char *policy, *key;
    std::vector<const char*> values;
  } rows[] = {
      {"sink", "sinks", {"-1", "four", "1048577", "", "4 ", "0x4", "4.0"}},
      {"sink", "window", {"0", "1073741825", "99999999999999"}},
      {"sink", "positions", {"relative", "", "ABS"}},
      {"sink", "exact_mask", {"yes", "2", "TRUE"}},
      {"h2o", "recent", {"-1", "half", "1073741825"}},
      {"h2o", "score", {"mean", ""}},
      {"h2o", "init", {"none", "Exact"}},
      {"h2o", "init_rows", {"0", "4097"}},
      {"h2o", "skip_layers", {"4", "-1"}},
      {"tova", "scope", {"head", ""}},
      {"tova", "skip_layers", {"4", "all"}},
      {"tova", "decide", {"query", ""}},
      {"quest", "digest", {"max", "none"}},
      {"quest", "spread", {"-0.5", "101", "nan", "inf", "one", "1,5"}},
      {"quest", "agg", {"sum", "QHEAD"}},
      {"quest", "skip_layers", {"4"}},
      {"quest", "sink_pages", {"-1", "1048577"}},
      {"quest", "min_pages", {"0", "1"}},
      {"quest", "dense_tokens", {"-1", "x"}},
      {"quest", "unit", {"tokens", ""}},
      {"quest", "candidates", {"0", "1025"}},
      {"raas", "stamp_rule", {"top", ""}},
      {"raas", "r", {"-0.1", "1.01", "nan", "half"}},
      {"raas", "stamp_source", {"mass"}},
      {"raas", "rank_scope", {"none"}},
      {"raas", "decide", {"token", ""}},
      {"raas", "protect_recent", {"-1", "1048577"}},
      {"raas", "min_decode_pages", {"1", "0", "1048577"}},
      {"raas", "overflow", {"spill", ""}},
      {"raas", "pin_prompt", {"maybe"}},
      {"hybrid", "rho", {"-0.1", "1.1", "nan"}},
      {"hybrid", "agg", {"qhead", "first"}},
      {"hybrid", "r", {"2"}},
      {"hybrid", "skip_layers", {"4"}},
      {"hybrid", "digest", {"median"}},
      {"random", "seed", {"-1", "4294967296", "", "one", "0x1"}},
      {"random", "min_decode_pages", {"1"}},
      {"random", "overflow", {"hybrid", "spill"}},
      {"random", "pin_prompt", {"perhaps"}},
      {"keyformer", "recent", {"-1", "half"}},
      {"keyformer", "seed", {"-1", "4294967296", "one"}},
      {"keyformer", "tau_init", {"0", "-1", "101", "nan", ""}},
      {"keyformer", "tau_end", {"0", "warm"}},
      {"keyformer", "tau_tokens", {"0", "-1"}},
      {"keyformer", "skip_layers", {"4"}},
      {"scissorhands", "recent", {"-1"}},
      {"scissorhands", "window", {"0", "1048577", "all"}},
      {"scissorhands", "drop", {"-0.1", "1.1", "nan", "half"}},
      {"scissorhands", "skip_layers", {"4"}},
      {"arkvale", "digest", {"max", "none"}},
      {"arkvale", "spread", {"-0.5", "101", "nan"}},
      {"arkvale", "agg", {"sum", "qhead", ""}},
      {"arkvale", "recall_from", {"0", "-1", "1048577", "half"}},
      {"arkvale", "recall_pages", {"-1", "1048577", "all", ""}},
      {"arkvale", "attend", {"all", "TOP", ""}},
      {"arkvale", "protect_recent", {"-1", "1048577", "two"}},
      {"arkvale", "sink_pages", {"-1", "1048577", "first"}},
      {"psa", "eps", {"-0.01", "1.01", "nan", "inf", "high", ""}},
      {"psa", "mb", {"0", "33", "-1", "all"}},
      {"psa", "max_pages", {"0", "1", "1048577", "none"}},
      {"psa", "bound", {"yes", ""}},
      {"psa", "pool", {"one", ""}},
      {"psa", "agg", {"qhead", "sum"}},
      {"psa", "digest", {"max"}},
      {"psa", "skip_layers", {"4"}},
      {"lfps", "sinks", {"-1", "65", "four"}},
      {"lfps", "recent", {"0", "65", ""}},
      {"lfps", "rows", {"0", "33", "all"}},
      {"lfps", "gamma", {"0", "-0.5", "1.01", "nan", "inf", "slow"}},
      {"lfps", "eta", {"-0.01", "1.01", "nan", "inf", "never"}},
      {"lfps", "candidates", {"all", "Quota", ""}},
      {"lfps", "quota", {"-1", "1073741825", "1.5", "half"}},
      {"lfps", "position_share", {"-0.1", "1.1", "nan", "two"}},
      {"lfps", "skip_layers", {"5", "-1"}},
      {"raas", "recall", {"yes", ""}},
      {"hybrid", "recall", {"2"}},
  };
  ASSERT_EVERY_POLICY_EXCEPT("dense", rows, policy);  // it has no options
  for (const auto& row : rows) {
    for (const char* value : row.values) {
      expect_refusal({row.policy, 512, 4096, 0, {{row.key, value}}}, WEIR_ERR_INVALID_ARG,
                     {(std::string(row.key) + "=" + value).c_str()});
    }
  }
  for (const char* name : {"raas", "hybrid"}) {
    const std::vector<std::pair<const char*, const char*>> values = {
        {"recall_from", "0"}, {"recall_pages", "-1"}, {"attend", "all"}, {"agg", "qhead"}, {"digest", "none"}};
    for (const auto& [key, value] : values) {
      expect_refusal({name, 512, 4096, 0, {{"recall", "on"}, {key, value}}}, WEIR_ERR_INVALID_ARG,
                     {(std::string(key) + "=" + value).c_str()});
    }
  }
  // With a rule that reads it.
  for (const char* value : {"-0.1", "1.5", "nan", "tiny"}) {
    expect_refusal({"raas", 512, 4096, 0, {{"stamp_rule", "alpha"}, {"alpha", value}}}, WEIR_ERR_INVALID_ARG,
                   {"policy raas", "alpha", value});
  }
}

// Both ends of every range are allowed.
void options__limits_are_allowed(void**) {
  const Spec rows[] = {
      {"sink", 512, 4096, 0, {{"sinks", "0"}, {"window", "1"}, {"exact_mask", "on"}}},
      {"h2o", 512, 4096, 0, {{"recent", "0"}, {"init", "window"}, {"init_rows", "1"}, {"skip_layers", "3"}}},
      {"h2o", 512, 4096, 0, {{"recent", "480"}, {"init", "window"}, {"init_rows", "4096"}}},
      {"tova", 512, 4096, 0, {{"skip_layers", "3"}}},
      {"quest", 512, 4096, 0, {{"spread", "0"}, {"sink_pages", "30"}, {"min_pages", "2"}}},
      {"quest", 512, 4096, 0, {{"spread", "100"}}},
      {"raas", 512, 4096, 0, {{"r", "0"}, {"protect_recent", "0"}, {"min_decode_pages", "2"}}},
      {"raas", 512, 4096, 0, {{"r", "1"}, {"min_decode_pages", "31"}}},
      {"raas", 512, 4096, 0, {{"stamp_rule", "alpha"}, {"alpha", "0"}, {"pin_prompt", "off"}}},
      {"raas", 512, 4096, 0, {{"stamp_rule", "alpha"}, {"alpha", "1"}}},
      {"hybrid", 512, 4096, 0, {{"rho", "0"}}},
      {"random", 512, 4096, 0, {{"seed", "0"}, {"min_decode_pages", "2"}}},
      {"random", 512, 4096, 0, {{"seed", "4294967295"}, {"min_decode_pages", "31"}}},
      {"keyformer", 512, 4096, 0, {{"seed", "4294967295"}, {"tau_init", "0.1"}, {"tau_end", "100"}, {"recent", "0"}}},
      {"keyformer", 512, 4096, 0, {{"seed", "0"}, {"tau_tokens", "1"}, {"recent", "480"}, {"skip_layers", "3"}}},
      {"scissorhands", 512, 4096, 0, {{"window", "1"}, {"drop", "0"}, {"recent", "0"}}},
      {"scissorhands", 512, 4096, 0, {{"window", "1048576"}, {"drop", "1"}, {"recent", "480"}}},
      {"arkvale", 512, 4096, 0, {{"recall_from", "31"}, {"protect_recent", "0"}, {"recall_pages", "0"}}},
      {"arkvale", 512, 4096, 0, {{"recall_from", "1"}, {"protect_recent", "30"}, {"recall_pages", "1048576"}}},
      {"arkvale", 512, 4096, 0, {{"spread", "0"}, {"attend", "top"}}},
      {"arkvale", 512, 512, 0, {{"recall_from", "1048576"}, {"protect_recent", "1048576"}}},  // nothing ever leaves
      {"psa", 512, 4096, 0, {{"eps", "0"}, {"mb", "1"}, {"max_pages", "2"}}},
      {"psa", 512, 4096, 0, {{"eps", "1"}, {"mb", "32"}, {"max_pages", "32"}, {"sink_pages", "30"}}},
      {"psa", 0, 4096, 0, {{"bound", "true"}, {"max_pages", "1048576"}, {"digest", "minmax"}}},
      {"psa", 32, 4096, 0, {}},  // a microbatch no larger than the budget
      {"psa", 0, 4096, 0, {{"recall", "off"}}},
      {"psa", 64, 4096, 0, {{"recall", "on"}, {"max_pages", "1048576"}}},
      {"psa", 48, 4096, 0, {{"recall", "on"}, {"sink_pages", "0"}}},
      {"psa", 160, 4096, 0, {{"recall", "on"}, {"mb", "4"}, {"skip_layers", "0"}, {"max_pages", "20"}}},
      {"psa", 512, 4096, 0, {{"recall", "on"}, {"bound", "true"}}},
      {"psa", 512, 4096, 0, {{"recall", "on"}, {"eps", "1"}, {"pool", "stream"}}},
      {"psa", 64, 4096, 0, {{"recall", "on"}, {"pool", "unified"}}},
      {"psa", 0, 4096, 0, {{"recall", "on"}, {"skip_layers", "2"}}},  // no budget: nothing leaves
      {"lfps", 512, 4096, 0, {{"sinks", "0"}, {"recent", "1"}, {"rows", "1"}, {"gamma", "0.01"}, {"eta", "0"}}},
      {"lfps", 512, 4096, 0, {{"sinks", "64"}, {"recent", "64"}, {"rows", "32"}, {"gamma", "1"}, {"eta", "1"}}},
      {"lfps", 512, 4096, 0, {{"quota", "512"}, {"skip_layers", "4"}}},
      {"lfps", 0, 4096, 0, {{"quota", "4096"}, {"candidates", "quota"}}},
      {"lfps", 512, 4096, 0, {{"position_share", "1"}, {"candidates", "threshold"}, {"lambda", "-100"}}},
      {"lfps", 1u << 20, 1u << 20, 0, {{"position_share", "0"}, {"candidates", "threshold"}, {"lambda", "100"}}},
      {"raas", 512, 4096, 0, {{"recall", "on"}, {"recall_from", "31"}, {"protect_recent", "0"}}},
      {"raas", 512, 4096, 0, {{"recall", "on"}, {"alpha", "0"}, {"agg", "max_raw"}, {"spread", "2"}}},
      {"hybrid", 512, 4096, 0, {{"recall", "on"}, {"rho", "0"}, {"digest", "centroid"}}},
      {"hybrid", 512, 4096, 0, {{"recall", "on"}, {"rho", "0.875"}}},
      {"hybrid", 512, 512, 0, {{"recall", "on"}, {"rho", "1"}}},  // nothing ever leaves
      {"dense",
       0,
       4096,
       0,
       {{"prompt", "snapkv"}, {"prompt_budget", "32"}, {"prompt_window", "32"}, {"prompt_kernel", "33"}}},
  };
  ASSERT_EVERY_POLICY(rows, name);
  for (const Spec& s : rows) expect_policy(s);
}

void options__contradictions(void**) {
  const weir_status bad = WEIR_ERR_INVALID_ARG;
  for (const char* name : {"raas", "hybrid"}) {
    const std::string policy = std::string("policy ") + name;
    expect_refusal({name, 512, 4096, 0, {{"alpha", "0.1"}, {"r", "0.1"}}}, bad,
                   {policy.c_str(), "option r ", "stamp_rule=alpha"});
    expect_refusal({name, 512, 4096, 0, {{"alpha", "0.1"}, {"stamp_rule", "top_r"}}}, bad,
                   {policy.c_str(), "alpha", "stamp_rule=top_r"});
    expect_refusal({name, 512, 4096, 0, {{"r", "0.1"}, {"stamp_rule", "alpha"}}}, bad,
                   {policy.c_str(), "option r ", "stamp_rule=alpha"});
  }
  expect_refusal({"raas", 512, 4096, 0, {{"digest", "minmax"}, {"stamp_source", "exact_mass"}}}, bad,
                 {"policy raas", "digest", "stamp_source=exact_mass"});
  expect_refusal({"raas", 512, 4096, 0, {{"digest", "minmax"}, {"spread", "2"}}}, bad,
                 {"policy raas", "spread", "mean_std"});
  expect_refusal({"raas", 512, 4096, 0, {{"overflow", "error"}, {"pin_prompt", "false"}}}, bad,
                 {"policy raas", "overflow", "pin_prompt=false"});
  expect_refusal({"raas", 512, 4096, 0, {{"overflow", "hybrid"}}}, bad, {"overflow=hybrid", "max_prompt_tokens"});
  for (const char* name : {"quest", "hybrid", "arkvale", "psa"}) {
    for (const char* digest : {"minmax", "cuboid_mean", "sphere_mean", "centroid", "sketch"}) {
      expect_refusal({name, 512, 4096, 0, {{"digest", digest}, {"spread", "2"}}}, bad, {name, "spread", "mean_std"});
    }
    expect_policy({name, 512, 4096, 0, {{"digest", "mean_std"}, {"spread", "2"}}});
  }
  for (const char* init : {"exact", "zero"}) {
    expect_refusal({"h2o", 512, 4096, 0, {{"init", init}, {"init_rows", "8"}}}, bad,
                   {"policy h2o", "init_rows", "window"});
  }
  expect_refusal({"hybrid", 512, 4096, 0, {{"agg", "qhead"}}}, bad, {"agg=qhead"});
  expect_refusal({"quest", 512, 4096, 0, {{"agg", "qhead"}, {"unit", "token"}}}, bad, {"unit=token", "agg=qhead"});
  expect_refusal({"quest", 512, 4096, 0, {{"candidates", "2"}}}, bad, {"policy quest", "candidates", "unit=page"});
  expect_policy({"quest", 512, 4096, 0, {{"candidates", "1024"}, {"unit", "token"}}});
  expect_refusal({"psa", 512, 4096, 0, {{"max_pages", "33"}}}, bad, {"policy psa", "max_pages=33", "32 pages"});
  expect_refusal({"psa", 512, 4096, 0, {{"max_pages", "4"}, {"mb", "5"}}}, bad, {"policy psa", "mb=5", "max_pages=4"});
  expect_refusal({"psa", 32, 4096, 0, {{"mb", "3"}}}, bad, {"policy psa", "mb=3", "max_pages=2"});
  expect_refusal({"psa", 0, 4096, 0, {{"max_pages", "3"}, {"sink_pages", "2"}}}, WEIR_ERR_BUDGET,
                 {"policy psa", "max_pages=3", "sink_pages=2", "at least 4"});
  expect_refusal({"psa", 0, 4096, 0, {{"bound", "true"}, {"digest", "centroid"}}}, bad,
                 {"policy psa", "bound=true", "minmax"});
  expect_refusal({"psa", 0, 4096, 0, {{"bound", "true"}, {"spread", "1"}}}, bad, {"policy psa", "spread"});
  expect_refusal({"psa", 0, 4096, 0, {{"bound", "true"}, {"max_pages", "40"}}}, bad,
                 {"policy psa", "bound=true", "max_pages", "40 pages"});
  expect_refusal({"psa", 512, 4096, 0, {{"bound", "true"}}}, bad, {"policy psa", "bound=true", "32 pages"});
  // Where pages come back: slots for two microbatches and the open page, or for all that a step attends at once.
  expect_refusal({"psa", 32, 4096, 0, {{"recall", "on"}}}, WEIR_ERR_BUDGET,
                 {"policy psa", "mb=1", "at least 48 tokens", "not 32"});
  expect_refusal({"psa", 128, 4096, 0, {{"recall", "on"}, {"mb", "4"}}}, WEIR_ERR_BUDGET,
                 {"policy psa", "mb=4 and sink_pages=0", "at least 144 tokens", "not 128"});
  expect_refusal({"psa", 128, 4096, 0, {{"recall", "on"}, {"mb", "4"}, {"sink_pages", "1"}}}, WEIR_ERR_BUDGET,
                 {"policy psa", "mb=4 and sink_pages=1", "at least 160 tokens", "not 128"});
  expect_refusal({"psa", 512, 4096, 0, {{"recall", "on"}, {"eps", "1"}, {"max_pages", "33"}}}, WEIR_ERR_BUDGET,
                 {"policy psa", "max_pages=33", "32 pages"});
  expect_refusal({"psa", 512, 4096, 0, {{"recall", "on"}, {"skip_layers", "1"}}}, bad,
                 {"policy psa", "skip_layers=1", "recall=on"});
  expect_refusal({"psa", 512, 4096, 0, {{"recall", "on"}, {"pool", "unified"}, {"eps", "1"}}}, bad,
                 {"policy psa", "pool=unified", "eps=1"});
  expect_refusal({"psa", 512, 4096, 0, {{"pool", "unified"}}}, bad, {"policy psa", "pool", "recall=off"});
  expect_refusal({"psa", 512, 4096, 0, {{"recall", "on"}, {"prompt", "snapkv"}}}, bad, {"prompt=snapkv", "recall"});
  expect_refusal({"lfps", 512, 4096, 0, {{"quota", "4097"}}}, bad, {"policy lfps", "quota=4097", "4096 tokens"});
  expect_refusal({"lfps", 512, 4096, 0, {{"quota", "511"}}}, bad, {"policy lfps", "quota=511", "512 tokens"});
  for (const char* lambda : {"0.2", "nan"}) {
    expect_refusal({"lfps", 512, 4096, 0, {{"lambda", lambda}}}, bad, {"policy lfps", "lambda"});
    expect_refusal({"lfps", 512, 4096, 0, {{"lambda", lambda}, {"candidates", "quota"}}}, bad, {"lfps", "lambda"});
  }
  for (const char* lambda : {"-101", "101", "nan", "high"}) {
    expect_refusal({"lfps", 512, 4096, 0, {{"candidates", "threshold"}, {"lambda", lambda}}}, bad,
                   {"policy lfps", "lambda", lambda});
  }
  for (const char* prompt : {"snapkv", "pyramid", "ada"})
    expect_refusal({"lfps", 512, 4096, 0, {{"prompt", prompt}}}, bad, {prompt, "positions"});
  // With recall nothing of a prompt is given up. A budget for the whole context recalls nothing.
  expect_refusal({"arkvale", 512, 4096, 0, {{"prompt", "snapkv"}}}, bad, {"prompt=snapkv", "recall"});
  expect_refusal({"arkvale", 512, 4096, 0, {{"prompt_budget", "64"}}}, bad, {"prompt_budget"});
  expect_policy({"arkvale", 512, 512, 0, {{"prompt", "snapkv"}}});
}

// With recall nothing pins itself, prompts have any length, and no layer is left out; and without it there is nothing
// to choose about it.
void options__recall(void**) {
  const weir_status bad = WEIR_ERR_INVALID_ARG;
  for (const char* name : {"raas", "hybrid"}) {
    const std::string policy = std::string("policy ") + name;
    const std::vector<std::pair<const char*, const char*>> without_sense = {
        {"pin_prompt", "true"}, {"pin_prompt", "false"},    {"overflow", "auto"},    {"overflow", "compress"},
        {"skip_layers", "0"},   {"stamp_source", "digest"}, {"stamp_rule", "top_r"}, {"r", "0.5"}};
    for (const auto& [key, value] : without_sense) {
      expect_refusal({name, 512, 4096, 0, {{key, value}, {"recall", "on"}}}, bad,
                     {policy.c_str(), (std::string("option ") + key + " ").c_str(), "recall=on"});
    }
    for (const char* key : {"recall_from", "recall_pages"}) {
      expect_refusal({name, 512, 4096, 0, {{key, "4"}}}, bad, {policy.c_str(), key, "recall=off"});
      expect_refusal({name, 512, 4096, 0, {{key, "4"}, {"recall", "off"}}}, bad, {policy.c_str(), key, "recall=off"});
    }
    expect_refusal({name, 512, 4096, 0, {{"attend", "top"}}}, bad, {policy.c_str(), "attend", "recall=off"});
    expect_refusal({name, 512, 4096, 0, {{"recall", "on"}, {"prompt", "snapkv"}}}, bad, {"prompt=snapkv", "recall"});
    expect_refusal({name, 512, 4096, 0, {{"recall", "on"}, {"protect_share", "0.1"}, {"protect_recent", "1"}}}, bad,
                   {policy.c_str(), "protect_share", "protect_recent"});
    expect_refusal({name, 512, 4096, 0, {{"recall", "on"}, {"recall_from", "30"}}}, WEIR_ERR_BUDGET,
                   {policy.c_str(), "recall_from=30 and protect_recent=2", "at least 528 tokens, not 512"});
    expect_refusal({name, 512, 4096, 0, {{"recall", "on"}, {"budget", "4"}}}, WEIR_ERR_NOT_FOUND,
                   {policy.c_str(), "recall", "recall_from", "recall_pages", "attend", "agg", "digest"});
  }
  expect_refusal({"raas", 512, 4096, 0, {{"recall", "on"}, {"min_decode_pages", "4"}}}, bad,
                 {"policy raas", "min_decode_pages", "recall=on"});
  expect_refusal({"raas", 512, 4096, 0, {{"recall", "on"}, {"decide", "gap"}}}, bad,
                 {"policy raas", "decide", "recall=on"});
  expect_refusal({"raas", 512, 4096, 0, {{"recall", "on"}, {"rho", "0.5"}}}, WEIR_ERR_NOT_FOUND,
                 {"policy raas", "rho"});
  expect_refusal({"hybrid", 512, 4096, 0, {{"recall", "on"}, {"rho", "0.95"}}}, WEIR_ERR_BUDGET,
                 {"policy hybrid", "512 tokens with rho=0.95 leaves 2 decode pages", "4 are needed"});
}

// The message about a name that does not exist lists those that do.
void options__unknown_names(void**) {
  expect_refusal({"lru", 512, 4096, 0, {}}, WEIR_ERR_NOT_FOUND, {"lru", every_policy_text});
  expect_refusal({"", 512, 4096, 0, {}}, WEIR_ERR_NOT_FOUND, {"dense"});
  expect_refusal({"dense", 512, 4096, 0, {{"window", "4"}}}, WEIR_ERR_NOT_FOUND,
                 {"policy dense", "window", "it has none"});
  const struct {
    const char* policy;
    std::vector<const char*> words;
  } rows[] = {
      {"sink", {"sinks", "window", "positions", "exact_mask"}},
      {"h2o", {"recent", "score", "init", "init_rows", "skip_layers"}},
      {"tova", {"scope", "decide", "skip_layers"}},
      {"quest",
       {"digest", "spread", "agg", "skip_layers", "sink_pages", "min_pages", "dense_tokens", "unit", "candidates"}},
      {"raas",
       {"stamp_rule", "r", "alpha", "stamp_source", "rank_scope", "protect_recent", "min_decode_pages", "overflow",
        "pin_prompt", "recall"}},
      {"hybrid", {"stamp_rule", "rho", "digest", "agg", "skip_layers", "sink_pages", "recall"}},
      {"random", {"seed", "min_decode_pages", "overflow", "pin_prompt"}},
      {"keyformer", {"recent", "skip_layers", "seed", "tau_init", "tau_end", "tau_tokens"}},
      {"scissorhands", {"recent", "skip_layers", "window", "drop"}},
      {"arkvale", {"digest", "spread", "agg", "recall_from", "recall_pages", "attend", "protect_recent"}},
      {"psa", {"digest", "agg", "skip_layers", "sink_pages", "eps", "mb", "max_pages", "bound", "recall", "pool"}},
      {"lfps",
       {"skip_layers", "sinks", "recent", "rows", "gamma", "eta", "position_share", "candidates", "lambda", "quota"}},
  };
  ASSERT_EVERY_POLICY_EXCEPT("dense", rows, policy);  // above
  for (const auto& row : rows) {
    std::vector<const char*> words = row.words;
    words.push_back("\"budget\"");
    words.push_back(row.policy);
    expect_refusal({row.policy, 512, 4096, 0, {{"budget", "4"}}}, WEIR_ERR_NOT_FOUND, words);
  }
  // raas has the options of a selection only when it may select.
  expect_refusal({"raas", 512, 4096, 256, {{"rho", "0.5"}}}, WEIR_ERR_NOT_FOUND, {"rho"});
  expect_policy({"raas", 512, 4096, 256, {{"rho", "0.5"}, {"overflow", "hybrid"}}});
}

void options__given_twice(void**) {
  expect_refusal({"raas", 512, 4096, 0, {{"r", "0.5"}, {"r", "0.5"}}}, WEIR_ERR_INVALID_ARG,
                 {"policy raas", "option r ", "twice"});
  expect_refusal({"sink", 512, 4096, 0, {{"sinks", "4"}, {"window", "16"}, {"sinks", "8"}}}, WEIR_ERR_INVALID_ARG,
                 {"sinks", "twice"});
  expect_refusal({"dense", 512, 4096, 0, {{"prompt", "snapkv"}, {"prompt", "snapkv"}}}, WEIR_ERR_INVALID_ARG,
                 {"prompt", "twice"});
  expect_refusal({"dense", 512, 4096, 0, {{"prompt", "snapkv"}, {"prompt_kernel", "5"}, {"prompt_kernel", "5"}}},
                 WEIR_ERR_INVALID_ARG, {"prompt_kernel", "twice"});
}

void options__prompt_policies(void**) {
  const weir_status bad = WEIR_ERR_INVALID_ARG;
  for (const char* name : every_policy) {
    const Spec window = {name, 512, 4096, 0, {{"prompt_window", "16"}}};
    PolicyNeeds needs;
    assert_true(try_policy({name, 512, 4096, 0, {}}, &needs).ok());
    expect_refusal({name, 512, 4096, 0, {{"prompt", "pyramids"}}}, WEIR_ERR_NOT_FOUND,
                   {"pyramids", "snapkv", "pyramid"});
    if (needs.prompt_policy)
      expect_policy(window);  // it has one without being asked for it
    else
      expect_refusal(window, bad, {"prompt_window", "prompt=NAME"});
  }
  // raas chooses one itself, unless `overflow` says what else to do with a prompt that is too long.
  expect_policy({"raas", 512, 4096, 0, {{"prompt_window", "16"}}});
  expect_refusal({"raas", 512, 4096, 0, {{"overflow", "error"}, {"prompt_window", "16"}}}, bad,
                 {"prompt_window", "prompt=NAME"});
  expect_refusal({"raas", 512, 4096, 0, {{"prompt", ""}}}, WEIR_ERR_NOT_FOUND, {"snapkv"});
  const auto snapkv = [](const char* key, const char* value) {
    return Spec{"quest", 512, 4096, 0, {{"prompt", "snapkv"}, {key, value}}};
  };
  for (const char* value : {"0", "31", "-1", "much"})
    expect_refusal(snapkv("prompt_budget", value), bad, {"snapkv", "prompt_budget", value});
  for (const char* value : {"0", "4097", "all"})
    expect_refusal(snapkv("prompt_window", value), bad, {"snapkv", "prompt_window", value});
  for (const char* value : {"0", "257", "five"})
    expect_refusal(snapkv("prompt_kernel", value), bad, {"snapkv", "prompt_kernel", value});
  for (const char* value : {"2", "32"})
    expect_refusal(snapkv("prompt_kernel", value), bad, {"prompt_kernel", value, "odd"});
  expect_refusal(snapkv("prompt_beta", "2"), WEIR_ERR_NOT_FOUND, {"snapkv", "prompt_beta"});
  for (const char* value : {"0.9", "1001", "nan", "steep"}) {
    expect_refusal({"quest", 512, 4096, 0, {{"prompt", "pyramid"}, {"prompt_beta", value}}}, bad,
                   {"pyramid", "prompt_beta", value});
  }
  expect_policy({"quest", 512, 4096, 0, {{"prompt", "pyramid"}, {"prompt_beta", "1"}}});
  for (const char* value : {"-0.1", "1.1", "nan"}) {
    expect_refusal({"quest", 512, 4096, 0, {{"prompt", "ada"}, {"prompt_alpha", value}}}, bad,
                   {"ada", "prompt_alpha", value});
  }
  expect_refusal({"sink", 512, 4096, 0, {{"prompt", "pyramid"}}}, WEIR_ERR_UNSUPPORTED, {"prompt=pyramid", "incache"});
  expect_refusal(snapkv("prompt_windows", "3"), WEIR_ERR_NOT_FOUND,
                 {"snapkv", "prompt_windows", "prompt_budget", "prompt_window", "prompt_kernel"});
  expect_refusal({"quest", 512, 4096, 0, {{"prompt", "snapkv"}, {"prompt_budget", "64"}, {"prompt_window", "65"}}}, bad,
                 {"prompt_window=65", "64"});
}

// The number after `word` in the last message.
uint32_t number_after(const char* word) {
  const char* at = std::strstr(last_error_text(), word);
  if (at == nullptr) fail_msg("\"%s\" does not say \"%s\"", last_error_text(), word);
  return static_cast<uint32_t>(std::strtoul(at + std::strlen(word), nullptr, 10));
}

// The message about a budget that is too small names the smallest that works.
void budgets__the_minimum_that_is_named_works(void**) {
  const Spec rows[] = {
      {"sink", 32, 4096, 0, {}},
      {"sink", 32, 4096, 0, {{"sinks", "17"}}},
      {"sink", 48, 4096, 0, {{"window", "200"}}},
      {"sink", 48, 4096, 0, {{"window", "193"}, {"sinks", "40"}, {"exact_mask", "true"}}},
      {"h2o", 64, 4096, 0, {{"recent", "100"}}},
      {"h2o", 64, 4096, 0, {{"recent", "96"}}},
      {"quest", 64, 4096, 0, {{"sink_pages", "10"}}},
      {"quest", 32, 4096, 0, {{"sink_pages", "1"}}},
      {"psa", 32, 4096, 0, {{"recall", "on"}}},
      {"psa", 48, 4096, 0, {{"recall", "on"}, {"sink_pages", "1"}}},
      {"psa", 128, 4096, 0, {{"recall", "on"}, {"mb", "3"}, {"sink_pages", "4"}}},
      {"raas", 32, 4096, 0, {}},
      {"raas", 64, 4096, 0, {{"min_decode_pages", "9"}, {"overflow", "error"}}},
      {"raas", 48, 4096, 0, {{"pin_prompt", "false"}}},
      {"random", 32, 4096, 0, {}},
      {"random", 48, 4096, 0, {{"pin_prompt", "false"}}},
      {"keyformer", 64, 4096, 0, {{"recent", "100"}}},
      {"scissorhands", 64, 4096, 0, {{"recent", "96"}}},
      {"dense", 64, 4096, 0, {{"prompt", "snapkv"}}},
  };
  for (const Spec& row : rows) {
    expect_refusal(row, WEIR_ERR_BUDGET, {row.name[0] == 'd' ? "snapkv" : row.name});
    Spec enough = row;
    enough.budget = number_after("at least ");
    assert_true(enough.budget > row.budget);
    expect_policy(enough);
    enough.budget -= 1;
    expect_refusal(enough, WEIR_ERR_BUDGET, {});
  }
}

// The first page of policies that choose pages, by default: where another one can be chosen beside it. What is smaller
// than the first pages that are asked for is refused.
void budgets__of_the_first_page(void**) {
  for (const char* name : {"quest", "arkvale", "psa"}) {
    for (const uint32_t pages : {2u, 3u, 8u}) {
      Made m(name, pages * kPageTokens, 4096, {});
      assert_true(m.status.ok());
      const uint32_t sinks = pages == 2 ? 0 : 1;
      assert_true(m.policy->step_rules().sink_pages == sinks && m.policy->n_front_rows() == sinks);
    }
    expect_refusal({name, 32, 4096, 0, {{"sink_pages", "1"}}}, WEIR_ERR_BUDGET, {"sink_pages=1"});
    expect_policy({name, 48, 4096, 0, {{"sink_pages", "1"}}});
    expect_policy({name, 32, 4096, 0, {{"sink_pages", "0"}}});
  }
  for (const char* name : {"raas", "hybrid"}) {
    expect_refusal({name, 512, 4096, 0, {{"recall", "on"}, {"sink_pages", "28"}}}, WEIR_ERR_BUDGET,
                   {"sink_pages=28 needs a budget of at least 528 tokens, not 512"});
    expect_policy({name, 528, 4096, 0, {{"recall", "on"}, {"sink_pages", "28"}}});
  }
  Made capped("psa", 0, 4096, {{"max_pages", "2"}});
  assert_true(capped.status.ok() && capped.policy->n_front_rows() == 0);
}

// The first page that nobody asked for steps back where it would cost the session its budget: what a policy accepts
// with sink_pages=0 it accepts without the option, and where it accepts sink_pages=1 the first page is there.
void budgets__a_first_page_by_default_costs_none(void**) {
  const struct {
    const char* name;
    Options options;
  } rows[] = {
      {"quest", {}},
      {"quest", {{"min_pages", "3"}}},
      {"arkvale", {}},
      {"arkvale", {{"recall_from", "1"}}},
      {"arkvale", {{"protect_recent", "1"}}},
      {"psa", {}},
      {"psa", {{"mb", "2"}}},
      {"psa", {{"max_pages", "2"}}},
      {"psa", {{"recall", "on"}}},
      {"psa", {{"recall", "on"}, {"mb", "3"}}},
      {"psa", {{"recall", "on"}, {"pool", "unified"}}},
      {"psa", {{"recall", "on"}, {"bound", "true"}}},
      {"psa", {{"recall", "on"}, {"eps", "1"}}},
      {"raas", {{"recall", "on"}}},
      {"raas", {{"recall", "on"}, {"recall_from", "1"}}},
      {"raas", {{"overflow", "hybrid"}}},
      {"hybrid", {}},
      {"hybrid", {{"rho", "0.1"}}},
      {"hybrid", {{"rho", "0"}, {"min_decode_pages", "2"}}},
      {"hybrid", {{"recall", "on"}}},
      {"hybrid", {{"recall", "on"}, {"rho", "0.2"}, {"min_decode_pages", "2"}}},
  };
  uint32_t n_back = 0;
  for (const auto& row : rows) {
    for (uint32_t budget = 16; budget <= 320; budget += 16) {
      Spec spec{row.name, budget, 4096, 512, row.options};
      spec.options.push_back({"sink_pages", "0"});
      const bool none = try_policy(spec).ok();
      spec.options.back().value = "1";
      const bool one = try_policy(spec).ok();
      spec.options.pop_back();
      const std::string text = text_of(spec) + " with " + std::to_string(budget) + " tokens";
      StepRules rules;
      const Status status = try_policy(spec, nullptr, &rules);
      if (status.ok() != (none || one)) fail_msg("%s: status %d: %s", text.c_str(), status.code(), last_error_text());
      if (!status.ok()) continue;
      const uint32_t sinks = rules.sink_pages;
      if (sinks != (one ? 1u : 0u)) fail_msg("%s: %u first pages", text.c_str(), sinks);
      n_back += one ? 0 : 1;
    }
  }
  assert_true(n_back >= 8);
}

void budgets__of_the_hybrid(void**) {
  expect_refusal({"hybrid", 64, 4096, 0, {}}, WEIR_ERR_BUDGET, {"64", "rho=0.5", "4 are needed"});
  expect_refusal({"hybrid", 512, 4096, 0, {{"rho", "1"}}}, WEIR_ERR_BUDGET, {"512", "rho=1", "smaller rho"});
  expect_refusal({"hybrid", 512, 4096, 0, {{"min_decode_pages", "20"}}}, WEIR_ERR_BUDGET,
                 {"16 decode pages", "20 are needed"});
  expect_policy({"hybrid", 128, 4096, 0, {}});
  expect_policy({"hybrid", 512, 512, 0, {{"rho", "1"}}});  // the context fits: nothing ever leaves
}

// Prompt tokens that stay must leave room for decoding; the message names the most that works.
void budgets__of_prompts(void**) {
  for (const Spec& row :
       {Spec{"h2o", 256, 4096, 0, {{"recent", "32"}, {"prompt", "snapkv"}, {"prompt_budget", "256"}}},
        Spec{"tova", 256, 4096, 0, {{"scope", "stream"}, {"prompt", "snapkv"}, {"prompt_budget", "4096"}}},
        Spec{"raas", 256, 4096, 0, {{"min_decode_pages", "6"}, {"prompt", "snapkv"}, {"prompt_budget", "176"}}}}) {
    expect_refusal(row, WEIR_ERR_BUDGET, {"prompt_budget", "256"});
    const std::string most = std::to_string(number_after("; "));
    Spec works = row;
    works.options.back().value = most.c_str();
    expect_policy(works);
    const std::string above = std::to_string(std::stoul(most) + 16);
    works.options.back().value = above.c_str();
    expect_refusal(works, WEIR_ERR_BUDGET, {most.c_str()});
  }
}

// A pinned prompt leaves raas at least min_decode_pages, whether it was compressed or not.
void budgets__pinned_prompts_leave_room_to_decode(void**) {
  for (const auto& [name, overflow] : {std::pair{"raas", "compress"}, {"raas", "error"}, {"random", "compress"}}) {
    Spec spec = {name, 256, 4096, 0, {{"overflow", overflow}, {"prompt", "snapkv"}, {"prompt_budget", "208"}}};
    expect_refusal(spec, WEIR_ERR_BUDGET, {"prompt_budget"});
    spec.options.back().value = "192";
    expect_policy(spec);
  }
}

constexpr const char* kPresets[] = {
#define WEIR_PRESET(name, ...) name,
#define WEIR_PRESET_WITH(name, ...) name,
#include "policy/presets.inc"
#undef WEIR_PRESET
#undef WEIR_PRESET_WITH
};

void presets__each_makes_a_policy(void**) {
  for (const char* name : kPresets) {
    const Preset* preset = nullptr;
    assert_true(find_preset(name, preset).ok());
    assert_string_equal(preset->name, name);
    expect_policy(
        {preset->policy, preset->budget_tokens, 4096, 2048, Options(preset->options.begin(), preset->options.end())});
  }
}

void presets__unknown_names_are_answered_with_the_list(void**) {
  for (const char* name : {"fast", "", "Exact"}) {
    const Preset* preset = nullptr;
    assert_int_equal(find_preset(name, preset).code(), WEIR_ERR_NOT_FOUND);
    assert_null(preset);
    assert_non_null(std::strstr(last_error_text(), (std::string("\"") + name + "\"").c_str()));
    for (const char* there_is : kPresets)
      assert_non_null(std::strstr(last_error_text(), (std::string(" ") + there_is).c_str()));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(options__bad_values),
      cmocka_unit_test(options__limits_are_allowed),
      cmocka_unit_test(options__contradictions),
      cmocka_unit_test(options__recall),
      cmocka_unit_test(options__unknown_names),
      cmocka_unit_test(options__given_twice),
      cmocka_unit_test(options__prompt_policies),
      cmocka_unit_test(budgets__the_minimum_that_is_named_works),
      cmocka_unit_test(budgets__of_the_first_page),
      cmocka_unit_test(budgets__a_first_page_by_default_costs_none),
      cmocka_unit_test(budgets__of_the_hybrid),
      cmocka_unit_test(budgets__of_prompts),
      cmocka_unit_test(budgets__pinned_prompts_leave_room_to_decode),
      cmocka_unit_test(presets__each_makes_a_policy),
      cmocka_unit_test(presets__unknown_names_are_answered_with_the_list),
  };
  return cmocka_run_group_tests_name("policy_options", tests, nullptr, nullptr);
}
