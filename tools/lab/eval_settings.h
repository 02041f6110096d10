// What an evaluation runs: problems from seeds, policies, budgets. The points are made here in one fixed order, so that
// a stopped evaluation goes on where it ended and the same command always means the same runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"
#include "problems.h"

namespace weir_cli {

// Tokens that share one fate in the KV memory; weir_plan_info.page_tokens, of which this version has one value.
inline constexpr uint32_t kPageTokens = 16;

// One entry of --policies, `name[:key=value[+key=value...]][@label]`.
struct PolicyEntry {
  std::string name;                  // a policy or preset of the library
  std::vector<std::string> options;  // "key=value"
  std::string label;                 // in tables and plots; the entry without its label when none was given

  bool is_dense() const { return name == "dense"; }  // the reference: no budget, one run for each problem
  std::string spec() const;                          // "name:key=value+key=value", what a label stands for
};

// Throws UsageError naming the entry.
PolicyEntry parse_policy_entry(const std::string& text);

struct EvalSettings {
  std::vector<std::string> families;
  std::vector<PolicyEntry> policies;
  std::vector<uint32_t> budgets;  // tokens per stream, ascending
  int n_problems = 50;            // of each family
  uint64_t seed = 1;
  int steps = 0;  // 0 here and below: the family's own size
  int lag = 0;
  int every = 0;
  int passkey_tokens = 0;
  bool question_as_decode = false;
  uint32_t context = 0;        // tokens of a session, at least; 0: as many as its problem needs
  double max_factor = 1.5;     // longest answer, in lengths of the expected one
  bool stop_at_error = false;  // end an answer where it leaves the right one: enough for strict accuracy
};

// A family with the size of its problems when the command line gives none.
struct FamilySize {
  const char* family;
  int steps;           // 0: the family has none
  int lag;             // 0: drawn
  int passkey_tokens;  // 0: the family has none
};
const FamilySize& family_size(const std::string& family);

// Throws UsageError with the field that is wrong, the family included.
void check_settings(const EvalSettings& settings);

// Labels of the policies, in their order.
std::vector<std::string> policy_labels(const EvalSettings& settings);

// Problem `index` of a family. Seeds of different --seed do not meet for fewer than a million problems.
Problem eval_problem(const EvalSettings& settings, const std::string& family, int index);

// One run: a problem under a policy and a budget. Budget 0 is the whole history (dense).
struct EvalPoint {
  std::string family;
  int problem = 0;  // index
  size_t policy = 0;
  uint32_t budget = 0;
};

// All points; problems vary slowest, so that what a stopped evaluation has done compares all policies on the same
// problems.
std::vector<EvalPoint> eval_points(const EvalSettings& settings);

// Neighbouring points of one problem, at most n_max in a group.
std::vector<std::vector<EvalPoint>> point_groups(const std::vector<EvalPoint>& points, size_t n_max);

// The session of a point: n_prompt tokens are prefilled, n_decode follow at most. The budget wins over a preset's. It
// has room for `context` tokens, if that is more.
SessionFlags point_session(const PolicyEntry& policy, uint32_t budget, size_t n_prompt, size_t n_decode,
                           size_t context = 0);

}  // namespace weir_cli
