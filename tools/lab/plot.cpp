// Line charts; see plot.h. Sizes are in SVG user units, which are pixels at a scale of one.
#include "plot.h"

#include <algorithm>
#include <cmath>

#include "options.h"

namespace weir_cli {
namespace {

constexpr double kPanelWidth = 300, kPanelHeight = 220;               // of the area between the axes
constexpr double kLeft = 58, kTop = 34, kBottom = 48;                 // around it; labels of lines are on the right
constexpr double kHeader = 64;                                        // figure title and legend
constexpr double kFontSize = 11, kLabelGap = 11, kLetterWidth = 6.6;  // labels of lines are at least kLabelGap apart

// Okabe and Ito's palette ("Color Universal Design", 2008) without its yellow, which a light background swallows, and a
// grey.
constexpr const char* kColors[] = {"#000000", "#0072b2", "#d55e00", "#009e73",
                                   "#cc79a7", "#56b4e9", "#e69f00", "#8a8a8a"};
constexpr int kColorCount = static_cast<int>(sizeof(kColors) / sizeof(kColors[0]));
constexpr int kMarkerCount = 5;

struct Scale {
  double low, high;   // values
  double start, end;  // where they are drawn
  bool is_log2;

  double at(double value) const {
    const double v = is_log2 ? std::log2(value) : value, l = is_log2 ? std::log2(low) : low,
                 h = is_log2 ? std::log2(high) : high;
    return start + (end - start) * (v - l) / (h - l);
  }
};

std::string coordinate(double value) { return format("%.1f", value); }

std::string text_at(double x, double y, const char* anchor, const std::string& text, const std::string& more = "") {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor + "\"" + more + ">" +
         svg_escaped(text) + "</text>\n";
}

std::string line_from(double x1, double y1, double x2, double y2, const char* color) {
  return "<path d=\"M" + coordinate(x1) + " " + coordinate(y1) + "L" + coordinate(x2) + " " + coordinate(y2) +
         "\" stroke=\"" + color + "\" fill=\"none\"/>\n";
}

// A filled sign around a point; its form is the style's.
std::string marker(double x, double y, int style, double opacity) {
  std::string shape;
  switch (style % kMarkerCount) {
    case 0:
      shape = format("M%.1f %.1fa3 3 0 1 0 6 0a3 3 0 1 0 -6 0", x - 3, y);  // circle
      break;
    case 1:
      shape = format("M%.1f %.1fh6v6h-6z", x - 3, y - 3);  // square
      break;
    case 2:
      shape = format("M%.1f %.1fl3.8 6.6h-7.6z", x, y - 4.2);  // triangle
      break;
    case 3:
      shape = format("M%.1f %.1fl4.2 4.2l-4.2 4.2l-4.2 -4.2z", x, y - 4.2);  // diamond
      break;
    default:
      shape = format("M%.1f %.1fl3.8 -6.6h-7.6z", x, y + 4.2);  // triangle upside down
  }
  return "<path d=\"" + shape + "\" fill=\"" + plot_color(style) + "\" fill-opacity=\"" + format("%.2f", opacity) +
         "\"/>\n";
}

// 1, 2 or 5 times a power of ten, so that about `n` fit in `range`.
double round_step(double range, int n) {
  const double rough = range / n;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) return factor * power;
  }
  return 10 * power;
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10000 && std::fmod(value, 1000) == 0) return format("%gk", value / 1000);
  return format("%g", std::abs(value) < 1e-12 ? 0 : value);
}

struct Range {
  double low, high;
};

// The values of one coordinate of all lines.
template <class Get>
Range range_of(const PlotPanel& panel, bool with_zero, Get get) {
  Range range = {INFINITY, -INFINITY};
  for (const PlotLine& line : panel.lines) {
    for (const auto& point : line.points) {
      if (std::isnan(point.second)) continue;
      range = {std::min(range.low, get(point)), std::max(range.high, get(point))};
    }
  }
  if (range.low > range.high) range = {0, 1};
  if (with_zero) range.low = std::min(range.low, 0.0);
  if (range.low == range.high) range.high = range.low == 0 ? 1 : range.low + std::abs(range.low);
  return range;
}

// Completes an axis: its ends and its ticks.
PlotAxis complete(PlotAxis axis, Range values) {
  if (!axis.has_range) {
    axis.low = values.low;
    axis.high = values.high;
    if (!axis.is_log2) axis.high += (axis.high - axis.low) * 0.05;
  }
  if (axis.is_log2 && axis.low <= 0) axis.low = std::min(1.0, axis.high / 2);
  if (!axis.ticks.empty()) return axis;
  if (axis.is_log2) {
    for (double tick = std::exp2(std::ceil(std::log2(axis.low))); tick <= axis.high; tick *= 2)
      axis.ticks.push_back(tick);
    return axis;
  }
  const double step = round_step(axis.high - axis.low, 5);
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double i = first; i * step <= axis.high + step * 1e-9; ++i) axis.ticks.push_back(i * step);
  return axis;
}

std::string draw_axes(const PlotPanel& panel, const PlotAxis& x_axis, const PlotAxis& y_axis, const Scale& x,
                      const Scale& y) {
  std::string svg = "<g stroke-width=\"1\">\n";
  for (double tick : y_axis.ticks) svg += line_from(x.start, y.at(tick), x.end, y.at(tick), "#e4e4e4");
  for (double tick : x_axis.ticks) svg += line_from(x.at(tick), y.start, x.at(tick), y.start + 4, "#555555");
  svg +=
      line_from(x.start, y.start, x.end, y.start, "#555555") + line_from(x.start, y.start, x.start, y.end, "#555555");
  svg += "</g>\n<g fill=\"#333333\">\n";
  for (double tick : y_axis.ticks) svg += text_at(x.start - 6, y.at(tick) + 4, "end", tick_text(tick));
  for (double tick : x_axis.ticks) svg += text_at(x.at(tick), y.start + 17, "middle", tick_text(tick));
  svg += text_at((x.start + x.end) / 2, y.start + 36, "middle", panel.x.label);
  const double x_label = x.start - 44, y_label = (y.start + y.end) / 2;
  svg += text_at(x_label, y_label, "middle", panel.y.label,
                 format(" transform=\"rotate(-90 %.1f %.1f)\"", x_label, y_label));
  svg += text_at(x.start, y.end - 10, "start", panel.title, " font-weight=\"bold\" font-size=\"13\"");
  return svg + "</g>\n";
}

std::string draw_line(const PlotLine& line, const Scale& x, const Scale& y) {
  std::string path, markers;
  bool pen_is_down = false;
  for (const auto& [px, py] : line.points) {
    if (std::isnan(py)) {
      pen_is_down = false;
      continue;
    }
    path += (pen_is_down ? "L" : "M") + coordinate(x.at(px)) + " " + coordinate(y.at(py));
    pen_is_down = true;
    if (line.has_markers) markers += marker(x.at(px), y.at(py), line.style, line.opacity);
  }
  if (path.empty()) return "";
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + plot_color(line.style) + "\" stroke-width=\"1.8\"" +
         format(" stroke-opacity=\"%.2f\"", line.opacity) + (line.is_dashed ? " stroke-dasharray=\"6 4\"" : "") +
         "/>\n" + markers;
}

struct EndLabel {
  double x, y;
  const PlotLine* line;
};

// Labels at the last points, moved apart where they would touch.
std::string draw_end_labels(const PlotPanel& panel, const Scale& x, const Scale& y) {
  std::vector<EndLabel> labels;
  for (const PlotLine& line : panel.lines) {
    const auto last = std::find_if(line.points.rbegin(), line.points.rend(),
                                   [](const auto& point) { return !std::isnan(point.second); });
    if (line.label.empty() || last == line.points.rend()) continue;
    labels.push_back({x.end + 7, y.at(last->second) + 4, &line});
  }
  std::stable_sort(labels.begin(), labels.end(), [](const EndLabel& a, const EndLabel& b) { return a.y < b.y; });
  double free_y = y.end;  // the first label may be at the very top
  for (EndLabel& label : labels) {
    label.y = std::max(label.y, free_y);
    free_y = label.y + kLabelGap;
  }
  double limit = y.start + 6;  // and the last at the very bottom
  for (auto label = labels.rbegin(); label != labels.rend() && label->y > limit; ++label) {
    label->y = limit;
    limit -= kLabelGap;
  }
  std::string svg;
  for (const EndLabel& label : labels) {
    svg += text_at(label.x, label.y, "start", label.line->label, " fill=\"" + plot_color(label.line->style) + "\"");
  }
  return svg;
}

std::string draw_panel(const PlotPanel& panel, double left, double top) {
  const PlotAxis x_axis = complete(panel.x, range_of(panel, false, [](const auto& p) { return p.first; }));
  const PlotAxis y_axis = complete(panel.y, range_of(panel, true, [](const auto& p) { return p.second; }));
  const Scale x = {x_axis.low, x_axis.high, left + kLeft, left + kLeft + kPanelWidth, x_axis.is_log2};
  const Scale y = {y_axis.low, y_axis.high, top + kTop + kPanelHeight, top + kTop, y_axis.is_log2};
  std::string svg = draw_axes(panel, x_axis, y_axis, x, y);
  if (!std::isnan(panel.level)) {
    svg +=
        "<path d=\"M" + coordinate(x.start) + " " + coordinate(y.at(panel.level)) + "H" + coordinate(x.end) +
        "\" stroke=\"#777777\" stroke-dasharray=\"1 4\" stroke-linecap=\"round\" stroke-width=\"2\" fill=\"none\"/>\n";
  }
  for (const PlotLine& line : panel.lines) svg += draw_line(line, x, y);
  return svg + draw_end_labels(panel, x, y);
}

// Room for the labels at the lines' ends, or for half a tick's text.
double right_margin(const PlotFigure& figure) {
  size_t longest = 4;
  for (const PlotPanel& panel : figure.panels) {
    for (const PlotLine& line : panel.lines) longest = std::max(longest, line.label.size());
  }
  return 16 + kLetterWidth * static_cast<double>(longest);
}

std::string draw_legend(const std::vector<std::string>& legend, double width) {
  std::string svg;
  double x = kLeft, y = 44;
  for (size_t i = 0; i < legend.size(); ++i) {
    const double entry_width = 36 + kLetterWidth * static_cast<double>(legend[i].size());
    if (x > kLeft && x + entry_width > width) {
      x = kLeft;
      y += 16;
    }
    const int style = static_cast<int>(i);
    svg += line_from(x, y, x + 20, y, plot_color(style).c_str()) + marker(x + 10, y, style, 1);
    svg += text_at(x + 25, y + 4, "start", legend[i]);
    x += entry_width;
  }
  return svg;
}

// Rows that the legend takes beyond the first.
int extra_legend_rows(const std::vector<std::string>& legend, double width) {
  int rows = 0;
  double x = kLeft;
  for (const std::string& entry : legend) {
    const double entry_width = 36 + kLetterWidth * static_cast<double>(entry.size());
    if (x > kLeft && x + entry_width > width) {
      x = kLeft;
      ++rows;
    }
    x += entry_width;
  }
  return rows;
}

}  // namespace

std::string svg_escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';  // XML has no way to write most of them
    } else {
      out += c;
    }
  }
  return out;
}

std::string plot_color(int style) { return kColors[style % kColorCount]; }

std::string plot_svg(const PlotFigure& figure) {
  const int n_panels = static_cast<int>(figure.panels.size());
  const int n_columns = std::max(1, std::min(figure.n_columns, n_panels));
  const int n_rows = (n_panels + n_columns - 1) / n_columns;
  const double panel_width = kLeft + kPanelWidth + right_margin(figure), panel_height = kTop + kPanelHeight + kBottom;
  const double width = n_columns * panel_width;
  const double header = kHeader + 16 * extra_legend_rows(figure.legend, width);
  const double height = header + n_rows * panel_height;
  std::string svg =
      format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\"",
             width, height, width, height);
  svg += format(" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"%g\">\n", kFontSize);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  svg += text_at(kLeft, 24, "start", figure.title, " font-size=\"15\" font-weight=\"bold\"");
  svg += draw_legend(figure.legend, width);
  for (int i = 0; i < n_panels; ++i) {
    svg += draw_panel(figure.panels[static_cast<size_t>(i)], i % n_columns * panel_width,
                      header + i / n_columns * panel_height);
  }
  return svg + "</svg>\n";
}

}  // namespace weir_cli
