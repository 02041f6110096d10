// Settings of an evaluation; see eval_settings.h.
#include "eval_settings.h"

#include <algorithm>

namespace weir_cli {
namespace {

// Sizes at which the tiny reasoner is right with its whole history, and long enough that small budgets must evict:
// an answer is about 18 tokens a step.
constexpr FamilySize kFamilySizes[] = {
    {"base", 60, 0, 0},        // milestones of most distances are met at least once
    {"hubs", 40, 0, 0},        // the prompt grows by 8 tokens a step, so longer ones no longer fit small budgets
    {"rule", 40, 12, 0},       // the window of 12 lines spans 14 pages
    {"facts", 40, 0, 0},       // as hubs
    {"early", 40, 12, 0},      // the value asked for again is 36 lines or more back, far outside the window
    {"followup", 40, 12, 0},   // as early
    {"passkey", 0, 0, 1000}};  // half of the largest default budget

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = text.find(separator, at)) != std::string::npos; at = end + 1) {
    parts.push_back(text.substr(at, end - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

ProblemOptions problem_options(const EvalSettings& s, const std::string& family, int index) {
  const FamilySize& size = family_size(family);
  ProblemOptions o;
  o.family = family;
  o.steps = s.steps != 0 ? s.steps : size.steps != 0 ? size.steps : o.steps;
  o.lag = s.lag != 0 ? s.lag : size.lag;
  o.every = s.every;
  if (s.passkey_tokens != 0 || size.passkey_tokens != 0) {
    o.passkey_tokens = s.passkey_tokens != 0 ? s.passkey_tokens : size.passkey_tokens;
  }
  o.seed = s.seed * 1000000 + static_cast<uint64_t>(index);
  return o;
}

}  // namespace

std::string PolicyEntry::spec() const {
  std::string text = name;
  for (size_t i = 0; i < options.size(); ++i) text += (i == 0 ? ":" : "+") + options[i];
  return text;
}

PolicyEntry parse_policy_entry(const std::string& text) {
  PolicyEntry entry;
  const size_t at = text.find('@');
  const std::string spec = text.substr(0, at);
  const size_t colon = spec.find(':');
  entry.name = spec.substr(0, colon);
  if (colon != std::string::npos) entry.options = split(spec.substr(colon + 1), '+');
  entry.label = at == std::string::npos ? spec : text.substr(at + 1);
  const auto refuse = [&](const std::string& why) {
    throw UsageError("--policies " + text + ": " + why + "; expected name[:key=value[+key=value...]][@label]");
  };
  if (entry.name.empty()) refuse("the name is missing");
  if (entry.label.empty()) refuse("the label is empty");
  for (const std::string& option : entry.options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) refuse("\"" + option + "\" is not key=value");
  }
  return entry;
}

const FamilySize& family_size(const std::string& family) {
  for (const FamilySize& size : kFamilySizes) {
    if (family == size.family) return size;
  }
  static const FamilySize kNone = {"", 0, 0, 0};  // a family that is newer than the table: the generator's own sizes
  return kNone;
}

void check_settings(const EvalSettings& s) {
  for (const std::string& family : s.families) {
    const std::vector<std::string>& all = problem_families();
    if (std::find(all.begin(), all.end(), family) == all.end()) {
      std::string known;
      for (const std::string& name : all) known += (known.empty() ? "" : ", ") + name;
      throw UsageError("--families: no family \"" + family + "\"; there are " + known);
    }
    const std::string wrong = check_problem_options(problem_options(s, family, 0));
    if (!wrong.empty()) throw UsageError("family " + family + ": " + wrong);
  }
  for (size_t i = 0; i < s.policies.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (s.policies[i].label == s.policies[j].label) {
        throw UsageError("--policies: two entries have the label \"" + s.policies[i].label + "\"; give one @another");
      }
    }
  }
}

std::vector<std::string> policy_labels(const EvalSettings& settings) {
  std::vector<std::string> labels;
  for (const PolicyEntry& policy : settings.policies) labels.push_back(policy.label);
  return labels;
}

Problem eval_problem(const EvalSettings& settings, const std::string& family, int index) {
  return make_problem(problem_options(settings, family, index));
}

std::vector<EvalPoint> eval_points(const EvalSettings& s) {
  std::vector<EvalPoint> points;
  for (int problem = 0; problem < s.n_problems; ++problem) {
    for (const std::string& family : s.families) {
      for (size_t policy = 0; policy < s.policies.size(); ++policy) {
        if (s.policies[policy].is_dense()) {
          points.push_back({family, problem, policy, 0});
          continue;
        }
        for (uint32_t budget : s.budgets) points.push_back({family, problem, policy, budget});
      }
    }
  }
  return points;
}

std::vector<std::vector<EvalPoint>> point_groups(const std::vector<EvalPoint>& points, size_t n_max) {
  std::vector<std::vector<EvalPoint>> groups;
  for (const EvalPoint& point : points) {
    const bool fits = !groups.empty() && groups.back().size() < n_max && groups.back()[0].family == point.family &&
                      groups.back()[0].problem == point.problem;
    if (!fits) groups.emplace_back();
    groups.back().push_back(point);
  }
  return groups;
}

SessionFlags point_session(const PolicyEntry& policy, uint32_t budget, size_t n_prompt, size_t n_decode,
                           size_t context) {
  SessionFlags flags;
  flags.policy = policy.name;
  for (const std::string& option : policy.options) {
    // The format of the pages is of the session, and an entry may have one of its own all the same.
    if (option.starts_with("kv=")) {
      flags.kv = option.substr(3);
    } else {
      flags.policy_options.push_back(option);
    }
  }
  flags.budget = budget;
  flags.max_prompt = static_cast<uint32_t>(n_prompt);
  const size_t n_tokens = std::max(n_prompt + n_decode, context);
  flags.context = static_cast<uint32_t>((n_tokens + kPageTokens - 1) / kPageTokens * kPageTokens);
  weir_session_options preset = WEIR_SESSION_OPTIONS_INIT;
  if (weir_session_options_preset(policy.name.c_str(), &preset) == WEIR_OK) {
    flags.preset = policy.name;
    apply_preset(flags, false);
  }
  return flags;
}

}  // namespace weir_cli
