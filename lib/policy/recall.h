// Options of the policies that recall pages, and the rules that follow from them. Each step estimates all sealed pages.
// The best of them, and the open page, are wanted; wanted pages that are cold come back before the step attends, over
// the pages of least (stamp, score, row) that are not wanted. The policy says what a stamp is. Only the first pages
// (selection.sink_pages), which are always wanted, and pins of the application hold pages in the pool.
// docs/algorithms.md, "ArkVale" and "Recall by other policies".
#pragma once

#include <algorithm>

#include "policy/selection.h"

namespace weir {

// What a page's stamp is, by which pages leave.
enum class RecallStamp : uint8_t {
  kWanted,   // the last step that wanted the page
  kObserved  // what the policy's observation stamps
};

struct RecallOptions {
  SelectionOptions selection = {.agg = AggMode::kMaxZ, .skip_layers = 0};
  RecallStamp stamp = RecallStamp::kWanted;
  uint32_t from = 0;        // pages that a step wants, besides the open one
  uint32_t pages = 8;       // wanted pages that return in a step and stream, at most; 0: all
  uint32_t attend_top = 0;  // attended are the wanted pages, not all resident ones
  uint32_t protect = 0;     // newest sealed pages that do not leave
  // > 0: the slots that prompt pages may hold when the answer needs the others. Each part then wants pages of its own.
  uint32_t prompt_slots = 0;
};

// Pages of a stream's pool under the budget.
inline uint32_t recall_slots(const PolicyConfig& config) { return budget_pages(config, context_of(config)); }
// The newest pages that are protected unless the options say otherwise.
constexpr uint32_t default_protect(uint32_t n_slots) { return std::min(2u, n_slots / 8); }

// Reads the options of recall. o.protect is what it is without options.
Status read_recall(const PolicyConfig& config, OptionReader& options, RecallOptions& o);
// For a policy that could recall pages and does not: these options contradict recall=off.
Status refuse_recall_options(const OptionReader& options);
// Fills in context, tables and slots. `policy` is a name.
Status plan_recall(const char* policy, const PolicyConfig& config, const RecallOptions& o, PolicyNeeds& needs);

// Writes the options to a policy's rules.
void set_recall(StepRules& rules, const PolicyNeeds& needs, const RecallOptions& o);

}  // namespace weir
