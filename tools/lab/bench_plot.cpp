// The picture of a benchmark; see bench_plot.h.
#include "bench_plot.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "plot.h"

namespace weir_cli {
namespace {

using nlohmann::json;

// Depth to tokens a second, by weight type and policy.
using Rates = std::map<std::string, std::map<std::string, std::map<double, double>>>;

std::string policy_label(const json& result) {
  const auto budget = result.at("budget").get<uint64_t>();
  return result.at("policy").get<std::string>() + (budget > 0 ? " " + std::to_string(budget) : "");
}

Rates read_rates(std::istream& lines, const std::string& shape, std::string& device) {
  Rates rates;
  std::string text;
  for (int number = 1; std::getline(lines, text); ++number) {
    if (text.empty()) continue;
    try {
      const json result = json::parse(text);
      // Rates of one sequence, with the policies as they are without options.
      if (result.at("shape") != shape || result.value("sessions", 1) != 1 || result.contains("options")) continue;
      device = result.value("gpu", result.at("device").get<std::string>());
      auto& line = rates[result.at("type")][policy_label(result)];
      for (const json& row : result.at("rows")) line[row.at("depth")] = row.at("tok_per_s");
    } catch (const json::exception& error) {
      throw std::runtime_error("line " + std::to_string(number) + " is no result of weir bench: " + error.what());
    }
  }
  return rates;
}

PlotPanel rate_panel(const std::string& type, const std::map<std::string, std::map<double, double>>& policies,
                     std::vector<std::string>& legend) {
  PlotPanel panel;
  panel.title = type;
  panel.x.label = "tokens in the KV memory (thousands)";
  panel.y.label = "tokens a second";
  for (const auto& [policy, points] : policies) {
    PlotLine line;
    const auto known = std::find(legend.begin(), legend.end(), policy);
    line.style = static_cast<int>(known - legend.begin());
    if (known == legend.end()) legend.push_back(policy);
    line.label = policy;
    for (const auto& [depth, rate] : points) line.points.emplace_back(depth / 1000, rate);
    panel.lines.push_back(line);
  }
  return panel;
}

}  // namespace

std::string bench_plot_svg(std::istream& lines, const std::string& shape) {
  std::string device;
  PlotFigure figure;
  for (const auto& [type, policies] : read_rates(lines, shape, device)) {
    const bool has_depths =
        std::any_of(policies.begin(), policies.end(), [](const auto& policy) { return policy.second.size() > 1; });
    if (has_depths) figure.panels.push_back(rate_panel(type, policies, figure.legend));
  }
  if (figure.panels.empty()) throw std::runtime_error("no result of shape " + shape + " has more than one depth");
  figure.title = shape + ", decode speed against depth, " + device;
  figure.n_columns = std::min<int>(3, static_cast<int>(figure.panels.size()));
  return plot_svg(figure);
}

}  // namespace weir_cli
