// Terminal handling; see terminal.h. The sequences used are those that every VT220 descendant has.
#include "terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace weir_cli {
namespace {

// What a signal handler needs; it has no other way to tell, or to know.
volatile sig_atomic_t g_interrupts = 0, g_resized = 0, g_resumed = 0, g_row_is_open = 0, g_input_is_raw = 0;
termios g_cooked, g_raw;

std::string g_keys;  // bytes of standard input that were not taken

extern "C" void count_interrupt(int) { g_interrupts = g_interrupts + 1; }
extern "C" void note_resize(int) { g_resized = 1; }

constexpr char kPasteOn[] = "\x1b[?2004h", kPasteOff[] = "\x1b[?2004l";

// Without this the shell would inherit the scroll region, and a terminal without echo.
void give_terminal_back() {
  static const char kRestore[] = "\x1b[0m\x1b[r\x1b[999;1H\x1b[2K";
  bool failed = false;
  if (g_row_is_open != 0) failed |= write(STDOUT_FILENO, kRestore, sizeof(kRestore) - 1) < 0;
  if (g_input_is_raw != 0) {
    failed |= write(STDOUT_FILENO, kPasteOff, sizeof(kPasteOff) - 1) < 0;
    failed |= tcsetattr(STDIN_FILENO, TCSANOW, &g_cooked) != 0;
  }
  if (failed) errno = 0;  // a terminal that is gone wants nothing back
}

extern "C" void restore_and_end(int signal_number) {
  give_terminal_back();
  raise(signal_number);  // SA_RESETHAND has put the default action back
}

void set_handler(int signal_number, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal_number, &action, nullptr);
}

// Ctrl-Z: the process stops inside, and goes on there.
extern "C" void stop_and_go_on(int signal_number) {
  const int error = errno;
  give_terminal_back();
  set_handler(signal_number, SIG_DFL, 0);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, signal_number);
  raise(signal_number);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // here it stops
  set_handler(signal_number, stop_and_go_on, SA_RESTART);
  if (g_input_is_raw != 0 && tcsetattr(STDIN_FILENO, TCSANOW, &g_raw) == 0 &&
      write(STDOUT_FILENO, kPasteOn, sizeof(kPasteOn) - 1) > 0)
    g_resumed = 1;
  errno = error;
}

void watch_signals(bool on) {
  for (int signal_number : {SIGTERM, SIGHUP, SIGQUIT})
    set_handler(signal_number, on ? restore_and_end : SIG_DFL, static_cast<int>(SA_RESETHAND));
  set_handler(SIGTSTP, on ? stop_and_go_on : SIG_DFL, SA_RESTART);
  set_handler(SIGWINCH, on ? note_resize : SIG_DFL, SA_RESTART);
}

// The row that the cursor is in, as the terminal says; 0 when it does not within a moment. Keys that come meanwhile are
// kept.
int cursor_row() {
  static bool answers = true;
  if (g_input_is_raw == 0 || !answers) return 0;
  static const char kAsk[] = "\x1b[6n";
  if (write(STDOUT_FILENO, kAsk, sizeof(kAsk) - 1) < 0) return 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 20) <= 0) continue;
    char chunk[256];
    const ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (n <= 0) break;
    g_keys.append(chunk, static_cast<size_t>(n));
    for (size_t at = 0; (at = g_keys.find("\x1b[", at)) != std::string::npos; at += 2) {
      int row = 0, column = 0, length = 0;
      if (std::sscanf(g_keys.c_str() + at, "\x1b[%d;%dR%n", &row, &column, &length) != 2 || length == 0) continue;
      g_keys.erase(at, static_cast<size_t>(length));
      return row;
    }
  }
  answers = false;
  return 0;
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

struct Range {
  uint32_t first, last;
};
constexpr Range kZeroWidth[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd},  {0x064b, 0x065f}, {0x0900, 0x0902}, {0x093a, 0x093a},
    {0x093c, 0x093c}, {0x0941, 0x0948}, {0x094d, 0x094d},  {0x0e31, 0x0e31}, {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e},
    {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},  {0x202a, 0x202e}, {0x2060, 0x2064}, {0x20d0, 0x20ff},
    {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
constexpr Range kWide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23ec},   {0x25fd, 0x25fe},   {0x2614, 0x2615},
    {0x26a1, 0x26a1},   {0x2705, 0x2705},   {0x2728, 0x2728},   {0x274c, 0x274c},   {0x2795, 0x2797},
    {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97c},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
    {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

template <size_t n>
bool in(const Range (&ranges)[n], uint32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges), [c](Range r) { return c >= r.first && c <= r.last; });
}

int char_width(uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return 0;
  if (c < 0x0300) return 1;
  return in(kZeroWidth, c) ? 0 : in(kWide, c) ? 2 : 1;
}

// Decodes the character at `i` and moves `i` past it. Text of the program is valid UTF-8; other bytes count as one
// column each.
uint32_t next_char(std::string_view text, size_t& i) {
  const auto lead = static_cast<unsigned char>(text[i++]);
  if (lead < 0x80) return lead;
  const int n_more = lead >= 0xf8 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
  uint32_t c = n_more == 0 ? 0xfffd : lead & (0x3fu >> n_more);
  for (int k = 0; k < n_more && i < text.size() && (text[i] & 0xc0) == 0x80; ++k) {
    c = (c << 6) | (static_cast<unsigned char>(text[i++]) & 0x3fu);
  }
  return c;
}

}  // namespace

bool stdout_is_terminal() { return is_terminal(STDOUT_FILENO); }
bool stderr_is_terminal() { return is_terminal(STDERR_FILENO); }

TerminalSize terminal_size() {
  winsize size{};
  for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) return {size.ws_row, size.ws_col};
  }
  return {};
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string text = value;
    return text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

Style::Style(bool on) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') on = false;
  bold = on ? "\x1b[1m" : "";
  dim = on ? "\x1b[2m" : "";
  red = on ? "\x1b[31m" : "";
  green = on ? "\x1b[32m" : "";
  cyan = on ? "\x1b[36m" : "";
  reset = on ? "\x1b[0m" : "";
}

int display_width(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size();) width += char_width(next_char(text, i));
  return width;
}

std::string cut_to_width(std::string_view text, int columns) {
  int width = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    width += char_width(next_char(text, i));
    if (width > columns) return std::string(text.substr(0, start));
  }
  return std::string(text);
}

std::string cut_styled(std::string_view text, int columns) {
  std::string cut;
  int width = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size() - 1) + 1;
      cut += text.substr(start, i - start);
      continue;
    }
    width += char_width(next_char(text, i));
    if (width <= columns) cut += text.substr(start, i - start);
  }
  return cut;
}

std::string bar(double fraction, int columns) {
  static const bool utf8 = locale_is_utf8();
  const int n_full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * columns + 0.5);
  std::string text;
  for (int i = 0; i < columns; ++i) text += i < n_full ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
  return text;
}

bool Throttle::due() {
  const auto now = std::chrono::steady_clock::now();
  if (last_.time_since_epoch().count() != 0 && now - last_ < interval_) return false;
  last_ = now;
  return true;
}

void ProgressLine::update(const std::function<std::string()>& text) {
  static const bool on = stderr_is_terminal();
  if (!on || !throttle_.due()) return;
  const std::string line = cut_to_width(text(), terminal_size().columns - 1);
  std::fprintf(stderr, "\r\x1b[2K%s", line.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[2K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

void LiveBlock::draw(const std::vector<std::string>& lines) {
  const int columns = terminal_size().columns - 1;
  std::string out;
  if (g_resumed != 0 && g_row_is_open == 0) {
    n_drawn_ = 0;
    g_resumed = 0;
  }
  if (n_drawn_ > 0) out += "\r\x1b[" + std::to_string(n_drawn_) + "A";
  for (const std::string& line : lines) out += "\x1b[2K" + cut_styled(line, columns) + "\n";
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
  n_drawn_ = static_cast<int>(lines.size());
}

void StatusRow::open() {
  if (!on_ || is_open_) return;
  size_ = terminal_size();
  if (size_.rows < 4) return;
  is_open_ = true;
  g_row_is_open = 1;
  // The line end makes room when the cursor is in the last row; setting the region moves the cursor, so it is saved
  // around it.
  std::printf(
      "\n\x1b[A\x1b"
      "7\x1b[1;%dr\x1b"
      "8",
      size_.rows - 1);
  std::fflush(stdout);
  column_ = 0;
  row_ = cursor_row();
}

void StatusRow::close() {
  if (!is_open_) return;
  std::printf(
      "\x1b"
      "7\x1b[r\x1b[%d;1H\x1b[2K\x1b"
      "8",
      size_.rows);
  std::fflush(stdout);
  is_open_ = false;
  g_row_is_open = 0;
}

void StatusRow::note_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const uint32_t c = next_char(text, i);
    if (c == '\n') {
      moved(1, 0);
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\t') {
      column_ = std::min(column_ / 8 * 8 + 8, size_.columns - 1);
    } else if (const int width = char_width(c); width > 0) {
      const bool wraps = column_ + width > size_.columns;
      moved(wraps ? 1 : 0, wraps ? width : column_ + width);
    }
  }
}

void StatusRow::moved(int rows, int column) {
  if (row_ > 0) row_ = std::clamp(row_ + rows, 1, std::max(size_.rows - 1, 1));  // the region scrolls at its end
  column_ = column;
}

// The region begins anew after a change of size, or after the process was stopped. The old status row is cleared: it is
// as far below the cursor as it was, for terminals that bring back lines from above when they grow move both.
std::string StatusRow::fit_to(TerminalSize now) {
  std::string out =
      "\x1b"
      "7\x1b[r\x1b"
      "8";
  if (row_ > 0) {
    out +=
        "\x1b"
        "7\x1b[" +
        std::to_string(size_.rows - row_) +
        "B\x1b[2K\x1b"
        "8";
  } else if (now.rows > size_.rows) {
    out +=
        "\x1b"
        "7\x1b[" +
        std::to_string(size_.rows) +
        ";1H\x1b[2K\x1b"
        "8";
  }
  out +=
      "\x1b"
      "D\x1b[A\x1b"  // room for the row, in whatever column the cursor is
      "7\x1b[1;" +
      std::to_string(std::max(now.rows - 1, 2)) +
      "r\x1b"
      "8";
  size_ = now;
  return out;
}

void StatusRow::draw(const std::string& text) {
  if (!is_open_) return;
  const TerminalSize now = terminal_size();
  if (now.rows != size_.rows || now.columns != size_.columns || g_resumed != 0) {
    if (g_resumed != 0) {  // the row was given back
      row_ = 0;
      size_ = now;
    }
    g_resumed = 0;
    const std::string fit = fit_to(now);
    std::fwrite(fit.data(), 1, fit.size(), stdout);
    std::fflush(stdout);
    row_ = cursor_row();
  }
  if (column_ >= size_.columns - 1) return;
  const std::string out =
      "\x1b"
      "7\x1b[" +
      std::to_string(now.rows) + ";1H\x1b[0m\x1b[7m\x1b[2K" + cut_to_width(text, now.columns - 1) +
      "\x1b[0m\x1b"
      "8";
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

void StatusRow::draw_if_due(const std::function<std::string()>& text) {
  if (is_open_ && column_ < size_.columns - 1 && throttle_.due()) draw(text());
}

RawInput::RawInput(bool on) : on_(on && tcgetattr(STDIN_FILENO, &g_cooked) == 0) {
  if (!on_) return;
  g_raw = g_cooked;
  g_raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);  // signals stay
  g_raw.c_cc[VMIN] = 1;
  g_raw.c_cc[VTIME] = 0;
  g_input_is_raw = 1;
  watch_signals(true);
  tcsetattr(STDIN_FILENO, TCSANOW, &g_raw);
  std::fputs(kPasteOn, stdout);
  std::fflush(stdout);
}

RawInput::~RawInput() {
  if (!on_) return;
  std::fputs(kPasteOff, stdout);
  std::fflush(stdout);
  tcsetattr(STDIN_FILENO, TCSANOW, &g_cooked);
  g_input_is_raw = 0;
  watch_signals(false);
}

bool next_key(char& byte) {
  if (g_keys.empty()) return false;
  byte = g_keys[0];
  g_keys.erase(0, 1);
  return true;
}

bool take_typed_line(std::string_view line) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  char chunk[4096];
  if (g_input_is_raw != 0 && poll(&input, 1, 0) > 0) {
    const ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (n > 0) g_keys.append(chunk, static_cast<size_t>(n));
  }
  const std::string_view keys = g_keys;
  if (!keys.starts_with(line) || keys.size() == line.size() || keys[line.size()] != '\r') return false;
  g_keys.erase(0, line.size() + 1);
  return true;
}

KeyWait wait_for_keys(int timeout_ms) {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (int signal_number : {SIGINT, SIGWINCH, SIGTSTP}) sigaddset(&signals, signal_number);
  // One that comes between the look at its count and the wait would else be seen with the next key.
  sigprocmask(SIG_BLOCK, &signals, &before);
  const timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  bool has_input = false, is_late = false;
  while (!has_input && !is_late && g_interrupts == 0 && g_resized == 0 && g_resumed == 0) {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const int n_ready = ppoll(&input, 1, timeout_ms < 0 ? nullptr : &timeout, &before);
    has_input = n_ready > 0;
    is_late = n_ready == 0;
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (g_interrupts != 0) return KeyWait::kInterrupted;
  g_resized = 0;
  if (g_resumed != 0) return KeyWait::kResumed;
  if (!has_input) return is_late ? KeyWait::kTimeout : KeyWait::kResized;
  char chunk[4096];
  const ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
  if (n < 0 && errno == EINTR) return KeyWait::kKeys;
  if (n <= 0) return KeyWait::kEnd;
  g_keys.append(chunk, static_cast<size_t>(n));
  return KeyWait::kKeys;
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = count_interrupt;  // no SA_RESTART: a waiting read must return
  sigaction(SIGINT, &action, nullptr);
}

int interrupt_count() { return g_interrupts; }
void forget_interrupts() { g_interrupts = 0; }

Read read_line(std::string& line) {
  static std::string buffer;  // bytes of stdin beyond the last line that was returned
  for (;;) {
    if (const size_t end = buffer.find('\n'); end != std::string::npos) {
      line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return Read::kLine;
    }
    char chunk[4096];
    const ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (n > 0) {
      buffer.append(chunk, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      return Read::kInterrupted;
    } else if (buffer.empty()) {
      return Read::kEnd;
    } else {
      line.swap(buffer);
      buffer.clear();
      return Read::kLine;
    }
  }
}

}  // namespace weir_cli
