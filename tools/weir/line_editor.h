// Typing a turn on the terminal: what line_buffer.h knows of keys, with the keys from the terminal and the rows to it.
// The terminal gives keys as they come and echoes none (RawInput), so that what is typed during an answer does not
// stand in it; it waits for the next turn.
#pragma once

#include <functional>
#include <string>

#include "line_buffer.h"
#include "terminal.h"

namespace weir_cli {

class LineEditor {
 public:
  // `on_resize` draws what else is on the screen.
  LineEditor(StatusRow& row, const Style& style, std::function<void()> on_resize);

  // One turn, perhaps of several lines, that begins as `start`. After kInterrupted what was typed is gone.
  Read read(std::string& turn, const std::string& start = "");

 private:
  bool take_keys(std::string& turn, Read& how);
  void draw();
  void leave();

  StatusRow& row_;
  const Style& style_;
  std::function<void()> on_resize_;
  LineBuffer buffer_;
  size_t n_drawn_ = 0, drawn_cursor_row_ = 0;  // rows of the turn on the screen
};

}  // namespace weir_cli
