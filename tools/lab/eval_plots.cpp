// The pictures of an evaluation; see eval_plots.h.
#include "eval_plots.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "options.h"
#include "plot.h"
#include "problems.h"

namespace weir_cli {
namespace {

using nlohmann::ordered_json;

constexpr int kLengthBins = 10;  // more would show the noise of single runs

std::vector<double> budget_ticks(const Summary& summary) {
  return std::vector<double>(summary.budgets.begin(), summary.budgets.end());
}

PlotLine policy_line(const Summary& summary, const std::string& family, size_t policy, const BudgetPlot& plot) {
  const Measure& measure = plot.measure;
  PlotLine line;
  line.label = summary.labels[policy];
  line.style = static_cast<int>(policy);
  if (!plot.x.field.empty()) {
    std::vector<uint32_t> budgets = summary.budgets;
    budgets.push_back(0);
    for (uint32_t budget : budgets) {
      const Cell* cell = summary.find(family, line.label, budget);
      const double x = measured(cell, plot.x);
      if (x > 0) line.points.emplace_back(x, measured(cell, measure));
    }
    return line;
  }
  if (summary.is_whole(family, line.label)) {
    const double y = measured(summary.find(family, line.label, 0), measure);
    line.is_dashed = true;
    line.has_markers = false;
    const std::vector<double> ticks = budget_ticks(summary);
    line.points = {{ticks.empty() ? 1 : ticks.front(), y}, {ticks.empty() ? 2 : ticks.back(), y}};
    return line;
  }
  for (uint32_t budget : summary.budgets) {
    line.points.emplace_back(budget, measured(summary.find(family, line.label, budget), measure));
  }
  return line;
}

// An axis of whole powers of two around where the lines are.
void fit_x(PlotPanel& panel) {
  double low = INFINITY, high = 0;
  for (const PlotLine& line : panel.lines) {
    for (const auto& [x, y] : line.points) low = std::min(low, x), high = std::max(high, x);
  }
  if (low > high) low = high = 1;  // no point at all
  panel.x.has_range = true;
  panel.x.low = std::exp2(std::floor(std::log2(low)));
  panel.x.high = std::max(std::exp2(std::ceil(std::log2(high))), 2 * panel.x.low);
}

// An axis of whole decades around the values of the lines; what it cannot show becomes a gap.
void make_log(PlotPanel& panel) {
  double low = INFINITY, high = 0;
  for (PlotLine& line : panel.lines) {
    for (auto& [x, y] : line.points) {
      if (!(y > 0) || std::isinf(y)) y = NAN;
      low = std::fmin(low, y);
      high = std::fmax(high, y);
    }
  }
  if (low > high) low = high = 1;  // no value at all
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = std::max(static_cast<int>(std::ceil(std::log10(high))), first + 1);
  panel.y.is_log2 = panel.y.has_range = true;
  for (int power = first; power <= last; ++power) panel.y.ticks.push_back(std::pow(10, power));
  panel.y.low = panel.y.ticks.front();
  panel.y.high = panel.y.ticks.back();
}

struct Sample {
  double n_decode, kv_bytes, decode_s;
};

// Means of samples whose lengths are near each other: at most kLengthBins groups of equal width.
std::vector<Sample> binned(const std::vector<Sample>& samples) {
  double low = INFINITY, high = -INFINITY;
  for (const Sample& s : samples) {
    low = std::min(low, s.n_decode);
    high = std::max(high, s.n_decode);
  }
  std::map<int, std::pair<Sample, int>> bins;
  for (const Sample& s : samples) {
    const int bin =
        high > low ? std::min(kLengthBins - 1, static_cast<int>((s.n_decode - low) / (high - low) * kLengthBins)) : 0;
    auto& [sum, n] = bins.try_emplace(bin, Sample{0, 0, 0}, 0).first->second;
    sum = {sum.n_decode + s.n_decode, sum.kv_bytes + s.kv_bytes, sum.decode_s + s.decode_s};
    ++n;
  }
  std::vector<Sample> means;
  for (const auto& [bin, group] : bins) {
    const auto& [sum, n] = group;
    means.push_back({sum.n_decode / n, sum.kv_bytes / n, sum.decode_s / n});
  }
  return means;
}

using Samples = std::map<std::pair<std::string, uint32_t>, std::vector<Sample>>;

Samples samples_of(const std::vector<ordered_json>& lines) {
  Samples samples;
  for (const ordered_json& line : lines) {
    if (line.at("refused").get<bool>()) continue;
    samples[{line.at("policy"), line.at("budget").get<uint32_t>()}].push_back(
        {line.value("n_decode", 0.0), line.value("kv_peak_bytes", 0.0), line.value("decode_s", 0.0)});
  }
  return samples;
}

// More labels than fit beside a panel would hide each other: then only those of the smallest and the largest budget
// stay, and none when these are still too many; the legend tells the policies.
void thin_labels(const Summary& summary, PlotPanel& panel) {
  constexpr size_t kMaxLabels = 18;
  if (panel.lines.size() <= kMaxLabels) return;
  const bool ends_fit = 2 * summary.labels.size() <= kMaxLabels;
  for (PlotLine& line : panel.lines) {
    const auto ends_with = [&](uint32_t budget) { return line.label.ends_with(" " + std::to_string(budget)); };
    const bool is_end = ends_with(summary.budgets.front()) || ends_with(summary.budgets.back()) || line.opacity == 1;
    if (!ends_fit || !is_end) line.label.clear();
  }
}

// Two lines, of memory and of time, for one policy and budget.
void add_sample_lines(const Summary& summary, const Samples& samples, size_t policy, uint32_t budget, PlotPanel& memory,
                      PlotPanel& time) {
  const auto found = samples.find({summary.labels[policy], budget});
  if (found == samples.end()) return;
  PlotLine line;
  line.style = static_cast<int>(policy);
  line.label = summary.labels[policy] + (budget == 0 ? "" : " " + std::to_string(budget));
  const size_t rank = static_cast<size_t>(std::lower_bound(summary.budgets.begin(), summary.budgets.end(), budget) -
                                          summary.budgets.begin());
  // Small budgets are the fainter ones.
  const double n = static_cast<double>(std::max<size_t>(summary.budgets.size(), 1));
  line.opacity = budget == 0 ? 1 : 0.35 + 0.65 * static_cast<double>(rank + 1) / n;
  PlotLine time_line = line;
  for (const Sample& s : binned(found->second)) {
    line.points.emplace_back(s.n_decode, s.kv_bytes / 1048576);
    time_line.points.emplace_back(s.n_decode, s.decode_s);
  }
  memory.lines.push_back(std::move(line));
  time.lines.push_back(std::move(time_line));
}

}  // namespace

std::string budget_plot_svg(const Summary& summary, const BudgetPlot& plot) {
  PlotFigure figure;
  figure.title = plot.title;
  figure.legend = summary.labels;
  for (const std::string& family : summary.families) {
    PlotPanel panel;
    panel.title = plot.panel.empty() ? family : plot.panel;
    panel.x.label = plot.x_label;
    panel.x.is_log2 = true;
    if (plot.x.field.empty()) panel.x.ticks = budget_ticks(summary);
    panel.y.label = plot.y_label;
    if (plot.is_share) {
      panel.y.has_range = true;
      panel.y.high = 100;
    }
    if (plot.measure.with_chance) {
      panel.title += ", by chance " + chance_text(family);
      panel.level = plot.measure.scale * chance_level(family);
    }
    for (size_t i = 0; i < summary.labels.size(); ++i) {
      panel.lines.push_back(policy_line(summary, family, i, plot));
    }
    if (!plot.x.field.empty()) fit_x(panel);
    if (plot.is_log) make_log(panel);
    figure.panels.push_back(std::move(panel));
  }
  return plot_svg(figure);
}

std::string memory_plot_svg(const Summary& summary, const std::vector<ordered_json>& lines) {
  const Samples samples = samples_of(lines);
  PlotFigure figure;
  figure.title = "Memory and time against the length of the answer";
  figure.legend = summary.labels;
  figure.n_columns = 2;
  PlotPanel memory, time;
  memory.title = "KV memory";
  memory.y.label = "highest KV memory, MiB";
  time.title = "decode time";
  time.y.label = "decode time, seconds";
  memory.x.label = time.x.label = "tokens of the answer";
  for (size_t i = 0; i < summary.labels.size(); ++i) {
    add_sample_lines(summary, samples, i, 0, memory, time);
    for (uint32_t budget : summary.budgets) add_sample_lines(summary, samples, i, budget, memory, time);
  }
  thin_labels(summary, memory);
  thin_labels(summary, time);
  figure.panels = {std::move(memory), std::move(time)};
  return plot_svg(figure);
}

}  // namespace weir_cli
