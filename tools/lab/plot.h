// Line charts as SVG text: small multiples with axes, lines with markers, labels at the lines' ends and a legend.
// Colours are told apart by colour-blind readers too, and every line has a marker of its own as a second sign. It
// knows nothing of what is drawn.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weir_cli {

struct PlotLine {
  std::string label;   // at the line's end; "" for none
  int style = 0;       // colour and marker; the index of the line's legend entry
  double opacity = 1;  // to tell lines of one style apart
  bool is_dashed = false;
  bool has_markers = true;
  std::vector<std::pair<double, double>> points;  // ascending x; a y that is NaN leaves a gap
};

struct PlotAxis {
  std::string label;
  bool is_log2 = false;       // then all values are above 0
  std::vector<double> ticks;  // empty: round numbers are chosen
  bool has_range = false;     // then low and high are the ends; otherwise the lines' values and 0 are
  double low = 0, high = 1;
};

struct PlotPanel {
  std::string title;
  PlotAxis x, y;
  std::vector<PlotLine> lines;
  double level = std::numeric_limits<double>::quiet_NaN();  // a dotted line across at this y; NaN: none
};

struct PlotFigure {
  std::string title;
  std::vector<std::string> legend;  // by style
  std::vector<PlotPanel> panels;
  int n_columns = 3;
};

// A whole SVG document with a light background.
std::string plot_svg(const PlotFigure& figure);

// Text for use inside SVG.
std::string svg_escaped(const std::string& text);

// The colour of a style, "#rrggbb"; styles beyond the palette begin it anew.
std::string plot_color(int style);

}  // namespace weir_cli
