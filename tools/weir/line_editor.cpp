// A turn that is typed; see line_editor.h. Rows are drawn one by one and cleared to their ends: clearing the rest of
// the screen would clear the status row, too.
#include "line_editor.h"

#include <algorithm>
#include <utility>

#include "output.h"

namespace weir_cli {

LineEditor::LineEditor(StatusRow& row, const Style& style, std::function<void()> on_resize)
    : row_(row), style_(style), on_resize_(std::move(on_resize)) {}

Read LineEditor::read(std::string& turn, const std::string& start) {
  buffer_.clear();
  buffer_.set(start);
  n_drawn_ = drawn_cursor_row_ = 0;
  draw();
  for (Read how = Read::kLine;;) {
    if (take_keys(turn, how)) return how;
    switch (wait_for_keys()) {
      case KeyWait::kKeys:
      case KeyWait::kTimeout:
        break;
      case KeyWait::kResumed:
        n_drawn_ = drawn_cursor_row_ = 0;
        [[fallthrough]];
      case KeyWait::kResized:
        on_resize_();
        draw();
        break;
      case KeyWait::kInterrupted:
        leave();
        return Read::kInterrupted;
      case KeyWait::kEnd:
        leave();
        turn = buffer_.text();
        return turn.empty() ? Read::kEnd : Read::kLine;
    }
  }
}

// True when a key has ended the turn; keys after that one wait.
bool LineEditor::take_keys(std::string& turn, Read& how) {
  bool any = false;
  for (char byte; next_key(byte); any = true) {
    const LineBuffer::Key key = buffer_.feed(byte);
    if (key == LineBuffer::Key::kText) continue;
    draw();
    leave();
    turn = buffer_.text();
    how = key == LineBuffer::Key::kEnd ? Read::kEnd : Read::kLine;
    if (how == Read::kLine && !turn.empty()) buffer_.remember(turn);
    return true;
  }
  if (any) draw();
  return false;
}

void LineEditor::draw() {
  const TerminalSize size = terminal_size();
  const LineRows lines = lay_out(buffer_.text(), buffer_.cursor(), size.columns);
  // When a turn has more rows than the screen, those around the cursor are shown.
  const size_t n_max = static_cast<size_t>(std::max(size.rows - 2, 1));
  const size_t n_shown = std::min(lines.rows.size(), n_max);
  const size_t first = lines.cursor_row < n_shown ? 0 : lines.cursor_row - n_shown + 1;
  const auto up = [](size_t n) { return n == 0 ? std::string() : "\x1b[" + std::to_string(n) + "A"; };
  std::string out = "\r" + up(drawn_cursor_row_);
  row_.moved(-static_cast<int>(drawn_cursor_row_), 0);
  const size_t n_rows = std::max(n_shown, std::min(n_drawn_, n_max));
  for (size_t i = 0; i < n_rows; ++i) {
    if (i > 0) {
      out += "\r\n";
      row_.moved(1, 0);
    }
    if (i < n_shown) {
      const LineRows::Row& row = lines.rows[first + i];
      out += style_.cyan + row.mark + style_.reset + row.text;
    }
    out += "\x1b[K";
  }
  drawn_cursor_row_ = lines.cursor_row - first;
  n_drawn_ = n_shown;
  out += "\r" + up(n_rows - 1 - drawn_cursor_row_);
  if (lines.cursor_column > 0) out += "\x1b[" + std::to_string(lines.cursor_column) + "C";
  row_.moved(static_cast<int>(drawn_cursor_row_) - static_cast<int>(n_rows - 1), lines.cursor_column);
  put(out);
  flush_output();
}

// To the start of the row below the turn.
void LineEditor::leave() {
  std::string out = "\r\n";
  for (size_t i = drawn_cursor_row_; i < n_drawn_; ++i) {
    if (i > drawn_cursor_row_) out += "\r\n";
    row_.moved(1, 0);
  }
  put(out);
  flush_output();
}

}  // namespace weir_cli
