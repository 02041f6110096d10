// The waterfall picture: pages against steps, brightness is the attention mass of a page, a red tick is where a page
// left. One query head of one layer of a recording.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eval_trace.h"

namespace weir_cli {

struct Waterfall {
  // A cell that is not a mass of 0..1. Ordered, so that the largest of several cells is what shows of them.
  static constexpr float kAbsent = -2, kNotAttended = -1;

  std::string title;
  int n_steps = 0, n_pages = 0;                // n_pages: rows, by position
  int n_prompt_pages = 0;                      // rows of these hold prompt tokens
  std::vector<float> cells;                    // [n_pages, n_steps]
  std::vector<std::pair<int, int>> evictions;  // step, page

  float cell(int page, int step) const {
    return cells[static_cast<size_t>(page) * static_cast<size_t>(n_steps) + static_cast<size_t>(step)];
  }
};

// layer -1: the middle one. Throws std::runtime_error when the recording has no such layer or head, or no step.
Waterfall read_waterfall(const std::string& path, int layer, int head);

// At most about 1500 x 400 cells and 1.5 MB: larger pictures show the largest mass of the cells that share one.
std::string waterfall_svg(const Waterfall& picture);

// Every cell is a rectangle of whole pixels.
struct PixelImage {
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};
PixelImage waterfall_pixels(const Waterfall& picture);

}  // namespace weir_cli
