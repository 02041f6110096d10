// A line that is being typed: keys of a terminal become text, and text becomes rows to draw. Nothing here knows of a
// terminal; line_editor.h does. Keys are those of most shells: arrows, Home, End, Delete, Ctrl-A, -B, -D, -E, -F, -K,
// -U, -W, and up and down for earlier lines. A bracketed paste is text as it is, with its line ends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir_cli {

class LineBuffer {
 public:
  enum class Key { kText, kEnter, kEnd };  // kEnd: Ctrl-D on an empty line

  // One byte of what the terminal sends. After kEnter the line is in text(), until clear().
  Key feed(char byte);
  void clear();
  // Begins with a text, as if it had been typed.
  void set(const std::string& text);
  // Keeps a line for the key up.
  void remember(const std::string& line);

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // bytes in front of it

 private:
  Key control(char byte);
  void escape_sequence();
  void insert(std::string_view text);
  void erase(size_t first, size_t end);
  void recall(size_t index);
  size_t before(size_t at) const;  // start of the character that ends at `at`
  size_t after(size_t at) const;
  size_t word_before(size_t at) const;
  size_t word_after(size_t at) const;

  std::string text_;
  size_t cursor_ = 0;
  std::string sequence_;   // of a key, from its escape on
  std::string character_;  // the bytes of one that is not complete
  bool pasting_ = false;
  bool after_return_ = false;  // in a paste, whose line ends may be \r\n
  std::vector<std::string> history_;
  size_t history_at_ = 0;   // of what is shown; history_.size(): the line that is new
  std::string unfinished_;  // the new line while an earlier one is shown
};

// How a line stands on a terminal.
struct LineRows {
  struct Row {
    std::string mark;  // in front of the first row, and of each row after a line end
    std::string text;
  };
  std::vector<Row> rows;
  size_t cursor_row = 0;
  int cursor_column = 0;  // from 0
};
LineRows lay_out(std::string_view text, size_t cursor, int columns);

}  // namespace weir_cli
