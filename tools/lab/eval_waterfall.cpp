// The waterfall picture; see eval_waterfall.h.
#include "eval_waterfall.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "options.h"
#include "plot.h"

namespace weir_cli {
namespace {

using Color = std::array<uint8_t, 3>;

constexpr double kFaintestMass = 1e-4;  // and below: the darkest colour
constexpr int kLevels = 12;             // of brightness in the SVG; one path each
constexpr int kMaxColumns = 1500, kMaxRows = 400;
constexpr size_t kMaxSvgBytes = 1500000;
constexpr Color kWhite = {255, 255, 255}, kGrey = {196, 196, 200}, kRed = {230, 0, 38}, kPromptTint = {120, 180, 255};
constexpr double kPromptPart = 0.25;  // of the tint in the colour of a prompt page
// Five points of the viridis colour map, whose lightness grows evenly for all kinds of colour sight.
constexpr Color kRamp[] = {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
constexpr int kRampSteps = static_cast<int>(sizeof(kRamp) / sizeof(kRamp[0])) - 1;

Color mixed(Color a, Color b, double part_of_b) {
  Color out;
  for (size_t i = 0; i < 3; ++i) out[i] = static_cast<uint8_t>(std::lround(a[i] + (b[i] - a[i]) * part_of_b));
  return out;
}

// 0..1 on a logarithmic scale.
double brightness(double mass) {
  if (!(mass > kFaintestMass)) return 0;
  return std::min(1.0, 1 - std::log10(mass) / std::log10(kFaintestMass));
}

Color ramp(double value) {
  const double at = value * kRampSteps;
  const int i = std::min(kRampSteps - 1, static_cast<int>(at));
  return mixed(kRamp[i], kRamp[i + 1], at - i);
}

std::string hex(Color color) { return format("#%02x%02x%02x", color[0], color[1], color[2]); }

// Pages of the chosen head in one step.
void add_step(const TraceBlock& block, uint32_t head, uint32_t page_tokens,
              std::vector<std::vector<std::pair<int, float>>>& steps, std::vector<std::pair<int, int>>& evictions) {
  const TraceBlock::Stream& stream = block.streams[block.stream_of(head)];
  const TraceBlock::List& list = block.list_of(head);
  auto& cells = steps.emplace_back();
  for (uint32_t first_pos : stream.first_pos) {
    cells.emplace_back(static_cast<int>(first_pos / page_tokens), Waterfall::kNotAttended);
  }
  for (size_t i = 0; i < block.mass[head].size(); ++i) {
    cells[list.is_all ? i : list.rows[i]].second = std::max(0.0f, block.mass[head][i]);
  }
  for (uint32_t victim : stream.victims) {
    evictions.emplace_back(static_cast<int>(steps.size()) - 1, static_cast<int>(victim / page_tokens));
  }
}

// Fewer cells: the largest of the cells that share one.
struct Grid {
  int n_columns, n_rows;
  std::vector<float> cells;

  Grid(const Waterfall& w, int max_columns, int max_rows)
      : n_columns(std::min(w.n_steps, max_columns)),
        n_rows(std::min(w.n_pages, max_rows)),
        cells(static_cast<size_t>(n_columns) * static_cast<size_t>(n_rows), Waterfall::kAbsent) {
    for (int page = 0; page < w.n_pages; ++page) {
      for (int step = 0; step < w.n_steps; ++step) {
        float& cell = at(row_of(w, page), column_of(w, step));
        cell = std::max(cell, w.cell(page, step));
      }
    }
  }
  int column_of(const Waterfall& w, int step) const { return static_cast<int>(int64_t{step} * n_columns / w.n_steps); }
  int row_of(const Waterfall& w, int page) const { return static_cast<int>(int64_t{page} * n_rows / w.n_pages); }
  float& at(int row, int column) {
    return cells[static_cast<size_t>(row) * static_cast<size_t>(n_columns) + static_cast<size_t>(column)];
  }
};

// -1: nothing to draw; kLevels: not attended.
int level_of(float cell) {
  if (cell == Waterfall::kAbsent) return -1;
  if (cell == Waterfall::kNotAttended) return kLevels;
  return std::min(kLevels - 1, static_cast<int>(brightness(cell) * kLevels));
}

// One path per level; a run of equal cells is one stroke.
std::map<int, std::string> run_paths(Grid& grid) {
  std::map<int, std::string> paths;
  for (int row = 0; row < grid.n_rows; ++row) {
    for (int column = 0; column < grid.n_columns;) {
      const int level = level_of(grid.at(row, column));
      const int start = column;
      while (column < grid.n_columns && level_of(grid.at(row, column)) == level) ++column;
      if (level >= 0) paths[level] += format("M%d %dh%d", start, row, column - start);
    }
  }
  return paths;
}

std::string eviction_path(const Waterfall& w, const Grid& grid) {
  std::vector<std::pair<int, int>> marks;  // row, column
  for (const auto& [step, page] : w.evictions) marks.emplace_back(grid.row_of(w, page), grid.column_of(w, step));
  std::sort(marks.begin(), marks.end());
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  std::string path;
  for (const auto& [row, column] : marks) path += format("M%d %dh1", column, row);
  return path;
}

std::string svg_text(double x, double y, const char* anchor, const std::string& text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + svg_escaped(text) + "</text>\n";
}

// Axis texts and the key of colours, around an area of width x height at (left, top).
std::string frame(const Waterfall& w, double left, double top, double width, double height) {
  std::string svg = format("<text x=\"%.1f\" y=\"22\" font-size=\"14\" font-weight=\"bold\">", left) +
                    svg_escaped(w.title) + "</text>\n";
  svg += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#555555\"/>\n", left,
                top, width, height);
  for (int i = 0; i <= 4; ++i) {
    svg += svg_text(left + width * i / 4, top + height + 16, "middle", std::to_string(int64_t{w.n_steps} * i / 4));
    svg += svg_text(left - 6, top + height * i / 4 + 4, "end", std::to_string(int64_t{w.n_pages} * i / 4));
  }
  svg += svg_text(left + width / 2, top + height + 34, "middle", "decode step");
  svg += format("<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">page, by position</text>\n",
                top + height / 2);
  double x = left;
  const auto key = [&](Color color, const std::string& text) {
    svg += format("<rect x=\"%.1f\" y=\"30\" width=\"12\" height=\"10\" fill=\"%s\"/>\n", x, hex(color).c_str());
    svg += svg_text(x + 16, 39, "start", text);
    x += 30 + 6.2 * static_cast<double>(text.size());
  };
  key(ramp(0), format("mass %g and below", kFaintestMass));
  key(ramp(0.5), format("%g", std::sqrt(kFaintestMass)));
  key(ramp(1), "1");
  key(kGrey, "resident, not attended");
  key(kPromptTint, "prompt");
  key(kRed, "evicted");
  return svg;
}

std::string svg_of(const Waterfall& w, Grid& grid) {
  constexpr double kLeft = 56, kTop = 50, kRight = 20, kBottom = 44;
  const double width = std::clamp(grid.n_columns * 2.0, 600.0, 1500.0),
               height = std::clamp(grid.n_rows * 4.0, 240.0, 800.0);
  const double full_width = kLeft + width + kRight, full_height = kTop + height + kBottom;
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\" fill=\"#333333\">\n",
      full_width, full_height, full_width, full_height);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + frame(w, kLeft, kTop, width, height);
  // In units of cells; a stroke of a row's middle fills the row.
  svg += format(
      "<g transform=\"translate(%.1f %.1f) scale(%.5f %.5f) translate(0 0.5)\" fill=\"none\" stroke-width=\"1\" "
      "shape-rendering=\"crispEdges\">\n",
      kLeft, kTop, width / grid.n_columns, height / grid.n_rows);
  for (const auto& [level, path] : run_paths(grid)) {
    const Color color = level == kLevels ? kGrey : ramp(level / (kLevels - 1.0));
    svg += "<path stroke=\"" + hex(color) + "\" d=\"" + path + "\"/>\n";
  }
  svg += "<path stroke=\"" + hex(kRed) + "\" d=\"" + eviction_path(w, grid) + "\"/>\n</g>\n";
  const double prompt_height = height * w.n_prompt_pages / w.n_pages;
  svg += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" fill-opacity=\"%g\"/>\n", kLeft,
                kTop, width, prompt_height, hex(kPromptTint).c_str(), kPromptPart);
  return svg + "</svg>\n";
}

Color cell_color(const Waterfall& w, int page, float cell) {
  const Color color = cell == Waterfall::kAbsent        ? kWhite
                      : cell == Waterfall::kNotAttended ? kGrey
                                                        : ramp(brightness(cell));
  return page < w.n_prompt_pages ? mixed(color, kPromptTint, kPromptPart) : color;
}

// The pixels of one cell, each cell_width x cell_height.
struct CellPainter {
  PixelImage& image;
  int cell_width, cell_height;

  void paint(int page, int step, Color color) const {
    for (int y = page * cell_height; y < (page + 1) * cell_height; ++y) {
      const size_t row = static_cast<size_t>(y) * image.width;
      for (int x = step * cell_width; x < (step + 1) * cell_width; ++x) {
        std::copy(color.begin(), color.end(), &image.rgb[(row + static_cast<size_t>(x)) * 3]);
      }
    }
  }
};

}  // namespace

Waterfall read_waterfall(const std::string& path, int layer, int head) {
  std::vector<std::vector<std::pair<int, float>>> steps;
  Waterfall w;
  const auto on_block = [&](const TraceHeader& header, const TraceBlock& block) {
    const int wanted = layer >= 0 ? layer : static_cast<int>(header.n_layers / 2);
    if (static_cast<int>(block.layer) != wanted || head >= static_cast<int>(header.n_heads)) return;
    add_step(block, static_cast<uint32_t>(head), header.page_tokens, steps, w.evictions);
  };
  const TraceHeader header = read_trace(path, on_block);
  if (layer >= static_cast<int>(header.n_layers) || head >= static_cast<int>(header.n_heads)) {
    throw std::runtime_error(path + ": holds " + std::to_string(header.n_layers) + " layers of " +
                             std::to_string(header.n_heads) + " heads; --layer and --head count from 0");
  }
  if (steps.empty()) throw std::runtime_error(path + ": holds no decode step");
  const int shown_layer = layer >= 0 ? layer : static_cast<int>(header.n_layers / 2);
  w.title = header.description + ", layer " + std::to_string(shown_layer) + ", head " + std::to_string(head);
  w.n_steps = static_cast<int>(steps.size());
  for (const auto& cells : steps) {
    for (const auto& cell : cells) w.n_pages = std::max(w.n_pages, cell.first + 1);
  }
  if (w.n_pages == 0) throw std::runtime_error(path + ": holds no pages");
  w.n_prompt_pages =
      std::min(w.n_pages, static_cast<int>((header.n_prompt + header.page_tokens - 1) / header.page_tokens));
  w.cells.assign(static_cast<size_t>(w.n_pages) * static_cast<size_t>(w.n_steps), Waterfall::kAbsent);
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const auto& [page, mass] : steps[step]) w.cells[static_cast<size_t>(page) * steps.size() + step] = mass;
  }
  return w;
}

std::string waterfall_svg(const Waterfall& picture) {
  int max_columns = kMaxColumns, max_rows = kMaxRows;
  for (;;) {
    Grid grid(picture, max_columns, max_rows);
    std::string svg = svg_of(picture, grid);
    if (svg.size() <= kMaxSvgBytes || (max_columns <= 1 && max_rows <= 1)) return svg;
    max_columns = std::max(1, max_columns * 3 / 4);
    max_rows = std::max(1, max_rows * 3 / 4);
  }
}

PixelImage waterfall_pixels(const Waterfall& w) {
  constexpr int kWidth = 1600, kHeight = 600, kMaxPixels = 16;  // small pictures are enlarged up to about this size
  PixelImage image;
  const CellPainter painter = {image, std::clamp(kWidth / w.n_steps, 1, kMaxPixels),
                               std::clamp(kHeight / w.n_pages, 1, kMaxPixels)};
  image.width = static_cast<uint32_t>(w.n_steps * painter.cell_width);
  image.height = static_cast<uint32_t>(w.n_pages * painter.cell_height);
  image.rgb.resize(size_t{image.width} * image.height * 3);
  for (int page = 0; page < w.n_pages; ++page) {
    for (int step = 0; step < w.n_steps; ++step) {
      painter.paint(page, step, cell_color(w, page, w.cell(page, step)));
    }
  }
  for (const auto& [step, page] : w.evictions) {
    if (page < w.n_pages) painter.paint(page, step, kRed);
  }
  return image;
}

}  // namespace weir_cli
