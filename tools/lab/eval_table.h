// Results summed up by family, policy and budget: the table, the CSV, and the smallest budgets that do.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace weir_cli {

// What one run was worth: the final answer is right; and no line before it is wrong.
struct Verdict {
  bool right = false, strict = false;
};

// All runs of one family, policy and budget. Sums are over the runs that were not refused.
struct Cell {
  std::map<std::string, Verdict> verdicts;  // by problem id
  int n_refused = 0;
  int n_whole_text = 0;
  std::map<std::string, double> sums;  // by name of the field in the results file

  int n_run() const { return static_cast<int>(verdicts.size()); }
  int n_right() const;
  int n_strict() const;
  double accuracy() const { return share(n_right()); }  // 0..1; NaN when nothing ran
  double strict_accuracy() const { return share(n_strict()); }
  double share(int n) const;
  double mean(const std::string& field) const;  // NaN when nothing ran
};

struct Summary {
  std::vector<std::string> families, labels;  // in the order of the table
  std::vector<uint32_t> budgets;              // ascending, without the 0 of whole histories
  std::map<std::tuple<std::string, std::string, uint32_t>, Cell> cells;

  const Cell* find(const std::string& family, const std::string& label, uint32_t budget) const;
  // A label whose runs have no budget: the reference.
  bool is_whole(const std::string& family, const std::string& label) const { return find(family, label, 0) != nullptr; }
};

// `families` and `labels` are the order wanted; what else is in the lines comes after, sorted. Throws
// std::runtime_error for a run that lacks a field.
Summary summarize(const std::vector<nlohmann::ordered_json>& lines, const std::vector<std::string>& families,
                  const std::vector<std::string>& labels);

// A number in each cell of the table: percent of right answers, for example. NaN shows as "-".
struct Measure {
  std::string title;         // of the table, with its unit
  std::string field;         // "strict", "right", or a field whose mean is shown
  double scale = 1;          // what the mean is multiplied by
  int n_digits = 1;          // after the point
  bool with_chance = false;  // say how much of it guessing would reach
};
double measured(const Cell* cell, const Measure& measure);  // NaN for null
// The chance level of a family in percent: "1", "0.01", "0.0011".
std::string chance_text(const std::string& family);
std::string table_text(const Summary& summary, const Measure& measure);

// One row per family, policy and budget; `fields` become columns of means.
std::string table_csv(const Summary& summary, const std::vector<std::string>& fields, bool with_accuracy);

// "For every family the smallest budget at which each policy is within 2 points of dense", by strictly right answers to
// the problems that both ran. Empty when all or none have a budget.
std::string smallest_budgets_text(const Summary& summary);

}  // namespace weir_cli
