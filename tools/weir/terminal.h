// What the program does to a terminal: colours, a live line, the status row of a conversation, and Ctrl-C. Nothing here
// writes a control code when the stream is not a terminal (or TERM=dumb), so that piped output stays plain text. Widths
// are estimates from a small table of wide and zero-width characters; they serve to cut lines, never to place the
// cursor.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weir_cli {

struct TerminalSize {
  int rows = 24;
  int columns = 80;
};

bool stdout_is_terminal();
bool stderr_is_terminal();
TerminalSize terminal_size();
// Whether the environment says that text is UTF-8, so that blocks and lines can be drawn.
bool locale_is_utf8();

// Control sequences, empty where `on` is false or the user asked for no colours (NO_COLOR).
struct Style {
  explicit Style(bool on);
  const char *bold, *dim, *red, *green, *cyan, *reset;
};

// Columns that UTF-8 text takes; control sequences must not be in it.
int display_width(std::string_view text);
// The longest start of `text` that fits in `columns`.
std::string cut_to_width(std::string_view text, int columns);
// The same of text with sequences of Style in it, which take no columns and are kept, also those behind the cut.
std::string cut_styled(std::string_view text, int columns);
// A bar such as "████░░░░", or "####...." where the locale is not UTF-8. fraction is clamped to 0..1.
std::string bar(double fraction, int columns);

// True at most `per_second` times a second.
class Throttle {
 public:
  explicit Throttle(double per_second) : interval_(1.0 / per_second) {}
  bool due();

 private:
  std::chrono::duration<double> interval_;
  std::chrono::steady_clock::time_point last_{};
};

// One line on stderr that is redrawn in place; does nothing when stderr is not a terminal.
class ProgressLine {
 public:
  ~ProgressLine() { clear(); }
  void update(const std::function<std::string()>& text);  // called only when a redraw is due
  void clear();

 private:
  Throttle throttle_{10};
  bool shown_ = false;
};

// Some lines on stdout that are redrawn in place; below, after the process was stopped.
class LiveBlock {
 public:
  void draw(const std::vector<std::string>& lines);  // each is cut to the width of the terminal, as cut_styled does
  void finish() { n_drawn_ = 0; }                    // what is drawn stays; the next draw starts below

 private:
  int n_drawn_ = 0;
};

// The last row of the terminal, kept apart from the text above by a scroll region, so that streamed text never meets
// it. Text that is streamed to stdout must be passed to `note_text`: the row is not redrawn while the cursor waits at
// the right edge, because not every terminal restores that state.
class StatusRow {
 public:
  explicit StatusRow(bool on) : on_(on) {}
  ~StatusRow() { close(); }
  void open();   // call at the start of a line
  void close();  // gives the row back, as a signal that ends or stops the process does
  void note_text(std::string_view text);
  void moved(int rows, int column);    // the cursor, by escape sequences or line ends
  void draw(const std::string& text);  // at once
  void draw_if_due(const std::function<std::string()>& text);

 private:
  std::string fit_to(TerminalSize now);

  bool on_;
  bool is_open_ = false;
  int column_ = 0;
  int row_ = 0;  // of the cursor, from 1; 0: the terminal did not tell where it was
  TerminalSize size_;
  Throttle throttle_{10};
};

// While it lives, standard input gives keys as they come, without echo, and pastes in brackets. Signals that end or
// stop the process give the terminal back first. At most one at a time.
class RawInput {
 public:
  explicit RawInput(bool on);
  ~RawInput();
  RawInput(const RawInput&) = delete;
  RawInput& operator=(const RawInput&) = delete;

 private:
  bool on_;
};

// Keys that have come and were not taken.
bool next_key(char& byte);
// Whether the keys that have come begin with this line; it is taken then. Does not wait.
bool take_typed_line(std::string_view line);
// kResumed: after a stop the cursor is somewhere else; until something is drawn there. kTimeout: so many milliseconds
// have passed; -1: there is no end.
enum class KeyWait { kKeys, kResized, kResumed, kInterrupted, kEnd, kTimeout };
KeyWait wait_for_keys(int timeout_ms = -1);

// From here on Ctrl-C is counted instead of ending the process; reads from the terminal return early.
void catch_interrupts();
int interrupt_count();
void forget_interrupts();

// One line from stdin without its newline. An unfinished last line counts as a line.
enum class Read { kLine, kEnd, kInterrupted };
Read read_line(std::string& line);

}  // namespace weir_cli
