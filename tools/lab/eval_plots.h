// The pictures of an evaluation, in the form of the papers: one panel per family, one line per policy.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval_table.h"

namespace weir_cli {

// A mean or share against the budget, or against another measure. A policy without a budget is a dashed level line, or
// there a point.
struct BudgetPlot {
  std::string title, y_label;
  Measure measure;
  bool is_share = false;   // the axis ends at 0 and 100
  bool is_log = false;     // a logarithmic axis, on which what is not above 0 is left out
  std::string panel = "";  // title of the panels; "": their family
  Measure x = {};          // without a field: the budget
  std::string x_label = "budget, tokens per stream";
};
std::string budget_plot_svg(const Summary& summary, const BudgetPlot& plot);

// KV memory and decode time of the runs against the length of their answers; one line per policy and budget.
std::string memory_plot_svg(const Summary& summary, const std::vector<nlohmann::ordered_json>& lines);

}  // namespace weir_cli
