// Sums and tables; see eval_table.h.
#include "eval_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "options.h"
#include "problems.h"

namespace weir_cli {
namespace {

using nlohmann::ordered_json;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kWithinPoints = 2;

// `wanted` as far as it occurs, then what else occurs: runs without a budget first, as the reference of the others.
std::vector<std::string> ordered(const std::vector<std::string>& wanted, std::set<std::string> found,
                                 const std::set<std::string>& first) {
  std::vector<std::string> names;
  const auto take = [&](const std::string& name) {
    if (found.erase(name) > 0) names.push_back(name);
  };
  for (const std::string& name : wanted) take(name);
  for (const std::string& name : first) take(name);
  names.insert(names.end(), found.begin(), found.end());
  return names;
}

void add_line(Summary& summary, const ordered_json& line) {
  const std::string family = line.at("family"), label = line.at("policy"), id = line.at("id");
  Cell& cell = summary.cells[{family, label, line.at("budget").get<uint32_t>()}];
  if (line.at("refused").get<bool>()) {
    ++cell.n_refused;
    return;
  }
  const bool right = line.value("right", false);
  cell.verdicts[id] = {right, right && line.value("wrong_lines", 0) == 0};
  if (line.value("whole_text", false)) ++cell.n_whole_text;
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "budget") cell.sums[key] += value.get<double>();
  }
}

std::string number_text(double value, int n_digits) {
  return std::isnan(value) ? "-" : format("%.*f", n_digits, value);
}

int label_width(const Summary& summary) {
  size_t width = 6;
  for (const std::string& label : summary.labels) width = std::max(width, label.size());
  return static_cast<int>(width);
}

int max_runs(const Summary& summary, const std::string& family) {
  int most = 0;
  for (const auto& [key, cell] : summary.cells) {
    if (std::get<0>(key) == family) most = std::max(most, cell.n_run() + cell.n_refused);
  }
  return most;
}

// "64: 50 of 50, 128: 3 of 50".
std::string refused_text(const Summary& summary, const std::string& family, const std::string& label) {
  std::string text;
  const auto add = [&](uint32_t budget, const std::string& name) {
    const Cell* cell = summary.find(family, label, budget);
    if (cell == nullptr || cell->n_refused == 0) return;
    text += (text.empty() ? "" : ", ") + name + ": " + std::to_string(cell->n_refused) + " of " +
            std::to_string(cell->n_run() + cell->n_refused);
  };
  add(0, "all");
  for (uint32_t budget : summary.budgets) add(budget, std::to_string(budget));
  return text;
}

// Strict accuracy on the problems that the other cell has too.
double accuracy_on(const Cell& cell, const Cell& other) {
  int n = 0, n_strict = 0;
  for (const auto& [id, verdict] : cell.verdicts) {
    if (other.verdicts.count(id) == 0) continue;
    ++n;
    n_strict += verdict.strict ? 1 : 0;
  }
  return n == 0 ? kNaN : static_cast<double>(n_strict) / n;
}

// The smallest budget that does, or "none". A budget that refuses a problem does not do.
std::string smallest_budget(const Summary& summary, const std::string& family, const std::string& label,
                            const Cell& whole) {
  for (uint32_t budget : summary.budgets) {
    const Cell* cell = summary.find(family, label, budget);
    if (cell == nullptr || cell->n_refused > 0 || cell->n_run() == 0) continue;
    const double gap = 100 * (accuracy_on(whole, *cell) - accuracy_on(*cell, whole));
    if (gap <= kWithinPoints + 1e-9) return std::to_string(budget);  // NaN, no problem in common, is no
  }
  return "none";
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

int Cell::n_right() const {
  return static_cast<int>(
      std::count_if(verdicts.begin(), verdicts.end(), [](const auto& run) { return run.second.right; }));
}

int Cell::n_strict() const {
  return static_cast<int>(
      std::count_if(verdicts.begin(), verdicts.end(), [](const auto& run) { return run.second.strict; }));
}

double Cell::share(int n) const { return verdicts.empty() ? kNaN : static_cast<double>(n) / n_run(); }

double Cell::mean(const std::string& field) const {
  const auto sum = sums.find(field);
  return sum == sums.end() || verdicts.empty() ? kNaN : sum->second / n_run();
}

double measured(const Cell* cell, const Measure& measure) {
  if (cell == nullptr) return kNaN;
  const double value = measure.field == "strict"  ? cell->strict_accuracy()
                       : measure.field == "right" ? cell->accuracy()
                                                  : cell->mean(measure.field);
  return measure.scale * value;
}

std::string chance_text(const std::string& family) { return format("%.2g", 100 * chance_level(family)); }

const Cell* Summary::find(const std::string& family, const std::string& label, uint32_t budget) const {
  const auto cell = cells.find({family, label, budget});
  return cell == cells.end() ? nullptr : &cell->second;
}

Summary summarize(const std::vector<ordered_json>& lines, const std::vector<std::string>& families,
                  const std::vector<std::string>& labels) {
  Summary summary;
  for (const ordered_json& line : lines) add_line(summary, line);
  std::set<std::string> all_families, all_labels, whole_labels;
  std::set<uint32_t> all_budgets;
  for (const auto& [key, cell] : summary.cells) {
    all_families.insert(std::get<0>(key));
    all_labels.insert(std::get<1>(key));
    if (std::get<2>(key) != 0) all_budgets.insert(std::get<2>(key));
    if (std::get<2>(key) == 0) whole_labels.insert(std::get<1>(key));
  }
  summary.families = ordered(families, all_families, {});
  summary.labels = ordered(labels, all_labels, whole_labels);
  summary.budgets.assign(all_budgets.begin(), all_budgets.end());
  return summary;
}

std::string table_text(const Summary& summary, const Measure& measure) {
  const int width = label_width(summary);
  std::string text = measure.title + "\n";
  for (const std::string& family : summary.families) {
    text += format("\n%s, n=%d", family.c_str(), max_runs(summary, family));
    if (measure.with_chance) text += ", by chance " + chance_text(family);
    text += format("\n%-*s %7s", width, "", "all");
    for (uint32_t budget : summary.budgets) text += format(" %7u", budget);
    text += "  refused\n";
    for (const std::string& label : summary.labels) {
      const double whole = measured(summary.find(family, label, 0), measure);
      text += format("%-*s %7s", width, label.c_str(),
                     summary.is_whole(family, label) ? number_text(whole, measure.n_digits).c_str() : "");
      for (uint32_t budget : summary.budgets) {
        const Cell* cell = summary.find(family, label, budget);
        text += format(" %7s", cell == nullptr ? "" : number_text(measured(cell, measure), measure.n_digits).c_str());
      }
      const std::string refused = refused_text(summary, family, label);
      if (!refused.empty()) text += "  " + refused;
      text.erase(text.find_last_not_of(' ') + 1);
      text += "\n";
    }
  }
  return text;
}

std::string table_csv(const Summary& summary, const std::vector<std::string>& fields, bool with_accuracy) {
  std::string text = "family,policy,budget,n,refused";
  if (with_accuracy) text += ",strict,strict_accuracy,chance,right,accuracy,whole_text";
  for (const std::string& field : fields) text += "," + field;
  text += "\n";
  std::vector<uint32_t> budgets = {0};
  budgets.insert(budgets.end(), summary.budgets.begin(), summary.budgets.end());
  for (const std::string& family : summary.families) {
    for (const std::string& label : summary.labels) {
      for (uint32_t budget : budgets) {
        const Cell* cell = summary.find(family, label, budget);
        if (cell == nullptr) continue;
        text += csv_field(family) + "," + csv_field(label) +
                format(",%u,%d,%d", budget, cell->n_run() + cell->n_refused, cell->n_refused);
        const auto add = [&](double value) { text += std::isnan(value) ? "," : format(",%.10g", value); };
        if (with_accuracy) {
          text += format(",%d", cell->n_strict());
          add(cell->strict_accuracy());
          add(chance_level(family));
          text += format(",%d", cell->n_right());
          add(cell->accuracy());
          text += format(",%d", cell->n_whole_text);
        }
        for (const std::string& field : fields) add(cell->mean(field));
        text += "\n";
      }
    }
  }
  return text;
}

std::string smallest_budgets_text(const Summary& summary) {
  if (summary.budgets.empty()) return "";
  std::string text;
  const int width = label_width(summary);
  for (const std::string& family : summary.families) {
    const auto reference = std::find_if(summary.labels.begin(), summary.labels.end(),
                                        [&](const std::string& label) { return summary.is_whole(family, label); });
    if (reference == summary.labels.end()) continue;
    const Cell& whole = *summary.find(family, *reference, 0);
    text += format("%s (%s %s%%)\n", family.c_str(), reference->c_str(),
                   number_text(100 * whole.strict_accuracy(), 1).c_str());
    for (const std::string& label : summary.labels) {
      if (summary.is_whole(family, label)) continue;
      text += format("  %-*s %7s\n", width, label.c_str(), smallest_budget(summary, family, label, whole).c_str());
    }
  }
  if (text.empty()) return text;
  return format("Smallest budget within %g points of the whole history, by answers without a wrong line\n",
                kWithinPoints) +
         text;
}

}  // namespace weir_cli
