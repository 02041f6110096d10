// The lanes of `weir demo` on a terminal, redrawn in place, or as plain lines where there is none.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "demo_lanes.h"
#include "demo_pages.h"
#include "demo_story.h"
#include "terminal.h"

namespace weir_cli {

// What the bars say of memory.
struct DemoScale {
  uint64_t mark_bytes = 0;  // the budget
  uint64_t max_bytes = 0;   // the end of the bars
};

class DemoView {
 public:
  DemoView(const DemoScale& scale, uint32_t lines_every, bool live);

  // All lanes, so often that eyes can follow, or a plain line every `lines_every` tokens. `look` brings the strip up to
  // date; it is called where it will be drawn.
  void frame(const std::string& doing, const DemoLanes& lanes, const PageStrip& strip,
             const std::function<void()>& look);
  // At once, and on a terminal a moment to look at it. `question`: what is being answered, or null.
  void slow_frame(const std::string& doing, const DemoLanes& lanes, const PageStrip& strip, const Question* question);
  // The last lane alone, on its way to `target` tokens, beside what all tokens would take.
  void going_on(const DemoLanes& lanes, uint32_t target, uint64_t dense_bytes_of_target);
  // What was drawn stays.
  void finish();

  const Style& style() const { return style_; }

 private:
  void draw(const std::string& doing, const DemoLanes& lanes, const PageStrip& strip, const Question* question);
  std::string lane_line(const DemoLane& lane) const;
  std::vector<std::string> strip_lines(const PageStrip& strip) const;
  std::string marked_bar(double bytes, const DemoScale& scale, int columns) const;
  bool line_is_due(uint32_t n_tokens, uint32_t every);

  DemoScale scale_;
  uint32_t lines_every_, next_line_ = 0, n_at_start_ = 0;
  bool live_;
  Style style_;
  LiveBlock block_;
  Throttle throttle_{12};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace weir_cli
