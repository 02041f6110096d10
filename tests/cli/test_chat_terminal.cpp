// cli: weir chat on a terminal: keys edit a line, a paste is one turn, nothing that is typed meanwhile stands in an
// answer, and however the program ends, the terminal is as it was. Mirrors tools/weir/line_buffer.cpp,
// line_editor.cpp, terminal.cpp and chat.cpp.
#include <signal.h>
#include <termios.h>

#include "tests/cli/terminal_process.h"
#include "tools/weir/line_buffer.h"

using namespace weir_cli::test;
using weir_cli::LineBuffer;

namespace {

// ---- the line

std::string typed(LineBuffer& line, const std::string& keys) {
  for (char key : keys) (void)line.feed(key);
  return line.text();
}

std::string typed(const std::string& keys) {
  LineBuffer line;
  return typed(line, keys);
}

void line__keys_edit(void**) {
  assert_string_equal(typed("abc\x1b[Dx").c_str(), "abxc");
  assert_string_equal(typed("abc\x1bOD\x1bODx\x1b[Cy").c_str(), "axbyc");
  assert_string_equal(typed("gr\xc3\xbcn\x1b[D\x7f").c_str(), "grn");  // a whole character
  assert_string_equal(typed("\xe6\xbc\xa2\xe5\xad\x97\x1b[D\x1b[3~").c_str(), "\xe6\xbc\xa2");
  assert_string_equal(typed("bc\x01"
                            "a\x05"
                            "d")
                          .c_str(),
                      "abcd");
  assert_string_equal(typed("bc\x1b[Ha\x1b[Fd").c_str(), "abcd");
  assert_string_equal(typed("one two  \x17").c_str(), "one ");
  assert_string_equal(typed("one two\x1b[1;5D\x0b").c_str(), "one ");
  assert_string_equal(typed("one two\x15").c_str(), "");
  assert_string_equal(typed("a\x1b[5~\x1b[15~\x1b\x07z").c_str(), "az");  // keys that mean nothing here
  assert_string_equal(typed("\x7f\x1b[D\x1b[3~\x17").c_str(), "");
  assert_string_equal(typed("a\xc3"
                            "b")
                          .c_str(),
                      "ab");  // half a character is no text
}

void line__earlier_lines_come_back(void**) {
  LineBuffer line;
  line.remember("first");
  line.remember("second");
  line.clear();
  assert_string_equal(typed(line, "new\x1b[A").c_str(), "second");
  assert_string_equal(typed(line, "\x1b[A\x1b[A").c_str(), "first");
  assert_string_equal(typed(line, "\x1b[B").c_str(), "second");
  assert_string_equal(typed(line, "\x1b[B\x1b[B").c_str(), "new");
}

void line__a_paste_is_text(void**) {
  LineBuffer line;
  const std::string paste = "\x1b[200~one\r\ntwo\rthree\n\tfour\x03\x04\x1b[A!\x1b[201~";
  for (char key : paste) assert_true(line.feed(key) == LineBuffer::Key::kText);
  assert_string_equal(line.text().c_str(), "one\ntwo\nthree\n\tfour!");
  assert_true(line.feed('\r') == LineBuffer::Key::kEnter);
}

void line__ends(void**) {
  LineBuffer line;
  assert_true(line.feed('\x04') == LineBuffer::Key::kEnd);
  assert_string_equal(typed(line, "a\\\rb").c_str(), "a\nb");  // goes on
  assert_true(line.feed('\n') == LineBuffer::Key::kEnter);
  line.clear();
  assert_string_equal(typed(line, "a\x1b\rb").c_str(), "a\nb");  // Alt-Enter
}

void line__rows_fit_the_width(void**) {
  const weir_cli::LineRows rows = weir_cli::lay_out("abcdefgh\nx\xe6\xbc\xa2", 9, 8);
  assert_int_equal(rows.rows.size(), 3);
  assert_string_equal((rows.rows[0].mark + rows.rows[0].text).c_str(), "> abcde");
  assert_string_equal((rows.rows[1].mark + rows.rows[1].text).c_str(), "fgh");
  assert_string_equal((rows.rows[2].mark + rows.rows[2].text).c_str(), ". x\xe6\xbc\xa2");
  assert_int_equal(rows.cursor_row, 2);
  assert_int_equal(rows.cursor_column, 2);
  assert_int_equal(weir_cli::lay_out(std::string(100, 'x'), 100, 80).rows.size(), 2);
}

// ---- the program

// weir chat in a terminal of its own; in a shell with job control it can be stopped.
class Terminal : public TerminalProcess {
 public:
  explicit Terminal(const std::vector<std::string>& more = {}, bool in_shell = false, bool shows_thoughts = true)
      : TerminalProcess(24, 80, {{"NO_COLOR", "1"}}, command(more, in_shell, shows_thoughts)) {}

  // As wait_for(), for the text of an answer, with which the status row is drawn.
  void wait_for_text(const std::string& part) {
    read_until(part, [&] {
      std::string shown = text_.substr(seen_);
      for (size_t at; (at = shown.find("\x1b"
                                       "7")) != std::string::npos;) {
        const size_t end = shown.find(
            "\x1b"
            "8",
            at);
        shown.erase(at, end == std::string::npos ? end : end + 2 - at);
      }
      return contains(shown, part);
    });
  }

  // At the prompt, which is drawn with what else is on the row cleared.
  std::string wait_for_prompt() { return wait_for("> \x1b[K"); }

  // No scroll region either.
  void assert_restored(size_t from = 0) const {
    assert_keys_restored();
    assert_true(text_.rfind("\x1b[r") != std::string::npos && text_.rfind("\x1b[r") >= from);
    const size_t set = text_.rfind("\x1b[1;23r"), reset = text_.rfind("\x1b[r");
    assert_true(set == std::string::npos || set < reset);
  }

 private:
  static std::vector<std::string> command(const std::vector<std::string>& more, bool in_shell, bool shows_thoughts) {
    std::vector<std::string> all = {WEIR_PROGRAM, "chat", "-m", kModel, "--temp", "0"};
    if (shows_thoughts) all.push_back("--show-thoughts");
    all.insert(all.end(), more.begin(), more.end());
    if (!in_shell) return all;
    std::string line = "set -m;";
    for (const std::string& argument : all) line += " " + shell_word(argument);
    return {"/bin/sh", "-c", line + "; echo job stopped; read line; fg; echo job ended"};
  }

  // Where the cursor is; any place does.
  void on_text() override {
    for (size_t at; (at = text_.find("\x1b[6n", asked_)) != std::string::npos; asked_ = at + 4) type("\x1b[5;1R");
  }

  size_t asked_ = 0;
};

// What the program says to a text when it comes in a pipe, a line for each turn.
std::string answer_to(const std::string& turn) {
  const Output o = weir({"chat", "-m", kModel, "--temp", "0", "-n", "12"}, turn + "\n");
  assert_works(o);
  std::string answer = o.out;
  while (!answer.empty() && answer.back() == '\n') answer.pop_back();
  return answer;
}

void chat__keys_edit_the_turn(void**) {
  Terminal terminal({"-n", "12"});
  terminal.wait_for_prompt();
  const tcflag_t flags = terminal.mode().c_lflag;
  assert_true((flags & (ECHO | ICANON)) == 0 && (flags & ISIG) != 0);
  terminal.type("Helo\x1b[Dl\r");
  terminal.wait_for_text(answer_to("Hello"));
  terminal.wait_for_prompt();
  terminal.type("\x1b[A\r");  // the same turn again
  terminal.wait_for("Hello");
  terminal.wait_for_prompt();
  terminal.type("/exit\r");
  assert_true(WIFEXITED(terminal.wait_for_end()));
  terminal.assert_restored();
}

void chat__a_paste_is_one_turn(void**) {
  Terminal terminal({"-n", "12"});
  terminal.wait_for_prompt();
  terminal.type("\x1b[200~one\ntwo\nthree\x1b[201~\r/stats\r");
  terminal.wait_for("tokens   ");
  const std::string stats = terminal.wait_for(" of ");
  terminal.type("\x04");
  terminal.wait_for_end();
  const Output piped = weir({"chat", "-m", kModel, "--temp", "0", "-n", "12"}, "one\\\ntwo\\\nthree\n/stats\n");
  assert_works(piped);
  assert_true(contains(piped.out, "tokens   " + stats));
}

void chat__a_long_line_is_whole(void**) {
  std::string words;
  while (words.size() < 6562) words += "river " + std::to_string(words.size()) + " ";
  Terminal terminal({"-n", "1"});
  terminal.wait_for_prompt();
  terminal.type(words + "\r/stats\r");
  terminal.wait_for("tokens   ");
  const std::string stats = terminal.wait_for(" of ");
  terminal.type("\x04");
  terminal.wait_for_end();
  const Output piped = weir({"chat", "-m", kModel, "--temp", "0", "-n", "1"}, words + "\n/stats\n");
  assert_works(piped);
  assert_true(contains(piped.out, "tokens   " + stats));
}

// The problem's answer takes some hundred tokens, and nobody sees what is typed while it comes.
void chat__what_is_typed_meanwhile_waits(void**) {
  const std::string problem =
      "Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. Find x40.";
  Terminal terminal;
  terminal.wait_for_prompt();
  terminal.type(problem + "\r");
  terminal.wait_for_text("x3 =");
  terminal.type("typed ahead");
  const std::string meanwhile = terminal.wait_for_prompt();
  assert_false(contains(meanwhile, "typed"));
  terminal.wait_for("typed ahead");
  terminal.type("\x15/reset\r");
  terminal.wait_for("is forgotten.");
  terminal.wait_for_prompt();
  terminal.type(problem + "\r");
  terminal.wait_for_text("x3 =");
  terminal.type("\x03");
  const std::string stopped = terminal.wait_for("(stopped)");
  assert_false(contains(stopped, "^C"));
  terminal.wait_for_prompt();
  terminal.type("\x03");
  terminal.wait_for("Ctrl-C once more leaves.");
  terminal.wait_for_prompt();
  terminal.type("\x03");
  const int status = terminal.wait_for_end();
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  terminal.assert_restored();
}

// Thoughts are folded, and can be ended.
void chat__thoughts_are_counted_and_ended(void**) {
  const std::string problem =
      "Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. Find x40.";
  Terminal terminal({}, false, false);
  terminal.wait_for_prompt();
  terminal.type(problem + "\r");
  terminal.wait_for("thinking: ");
  terminal.type("/finish\r");
  terminal.wait_for("(thought for ");
  const std::string answer = terminal.wait_for_prompt();
  assert_false(contains(answer, "x3 ="));
  terminal.type("/thoughts\r");
  terminal.wait_for("x3 =");
  terminal.wait_for_prompt();
  terminal.type("\x04");
  terminal.wait_for_end();
}

void chat__signals_give_the_terminal_back(void**) {
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    Terminal terminal;
    terminal.wait_for_prompt();
    if (number == SIGQUIT)
      terminal.type("\x1c");  // Ctrl-\ of the terminal
    else
      terminal.signal(number);
    const int status = terminal.wait_for_end();
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == number);
    terminal.assert_restored();
  }
}

void chat__a_stop_gives_the_terminal_back_for_a_while(void**) {
  Terminal terminal({"-n", "12"}, true);
  terminal.wait_for_prompt();
  const size_t before = terminal.text().size();
  terminal.type("\x1a");  // Ctrl-Z
  terminal.wait_for("job stopped");
  terminal.assert_restored(before);
  terminal.type("\r");
  terminal.wait_for("\x1b[1;23r");
  terminal.wait_for_prompt();
  assert_true((terminal.mode().c_lflag & (ECHO | ICANON)) == 0);
  terminal.type("Hello\r");
  terminal.wait_for_text(answer_to("Hello"));
  terminal.wait_for_prompt();
  terminal.type("\x04");
  terminal.wait_for("job ended");
  terminal.wait_for_end();
}

// The old status row is cleared: here the cursor was in row 5 of 24, so the row was 19 below it.
void chat__a_window_that_grows_has_one_status_row(void**) {
  Terminal terminal;
  terminal.wait_for_prompt();
  terminal.resize(40, 100);
  const std::string drawn = terminal.wait_for("\x1b[1;39r");
  assert_true(contains(drawn, "B\x1b[2K"));
  terminal.wait_for("\x1b[40;1H");
  terminal.type("\x04");
  terminal.wait_for_end();
}

// A model says what it likes; a terminal obeys none of it.
void chat__model_output_cannot_steer_the_terminal(void**) {
  // The tokens of the escape character (U+011B in a byte-level vocabulary) and of "!" change places.
  const std::string escape = std::string("\x02\0\0\0\0\0\0\0", 8) + "\xc4\x9b",
                    mark = std::string("\x01\0\0\0\0\0\0\0", 8) + "!";
  std::string bytes = read_file(kModel);
  const size_t first = bytes.find(escape), second = bytes.find(mark);
  assert_true(first < second && second != std::string::npos);
  bytes.replace(second, mark.size(), escape);
  bytes.replace(first, escape.size(), mark);
  const std::string model = write_file("steering.gguf", bytes);
  const Output piped = weir({"run", "-m", model, "-p", "Hello"});
  assert_works(piped);
  assert_true(contains(piped.out, "Hello\x1b Give"));  // a pipe has what the model says
  int handle = -1;
  winsize size = {24, 80, 0, 0};
  const pid_t process = forkpty(&handle, nullptr, nullptr, &size);
  if (process == 0) {
    setenv("TERM", "xterm", 1);
    execl(WEIR_PROGRAM, WEIR_PROGRAM, "run", "-m", model.c_str(), "-p", "Hello", nullptr);
    _exit(127);
  }
  std::string text;
  char chunk[4096];
  for (ssize_t n; (n = read(handle, chunk, sizeof(chunk))) > 0;) text.append(chunk, static_cast<size_t>(n));
  waitpid(process, nullptr, 0);
  close(handle);
  assert_true(contains(text, "Hello\\x1b Give"));
  assert_false(contains(text, "\x1b Give"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(line__keys_edit),
      cmocka_unit_test(line__earlier_lines_come_back),
      cmocka_unit_test(line__a_paste_is_text),
      cmocka_unit_test(line__ends),
      cmocka_unit_test(line__rows_fit_the_width),
      cmocka_unit_test(chat__keys_edit_the_turn),
      cmocka_unit_test(chat__a_paste_is_one_turn),
      cmocka_unit_test(chat__a_long_line_is_whole),
      cmocka_unit_test(chat__what_is_typed_meanwhile_waits),
      cmocka_unit_test(chat__thoughts_are_counted_and_ended),
      cmocka_unit_test(chat__signals_give_the_terminal_back),
      cmocka_unit_test(chat__a_stop_gives_the_terminal_back_for_a_while),
      cmocka_unit_test(chat__a_window_that_grows_has_one_status_row),
      cmocka_unit_test(chat__model_output_cannot_steer_the_terminal),
  };
  return cmocka_run_group_tests_name("chat_terminal", tests, make_folder, remove_folder);
}
