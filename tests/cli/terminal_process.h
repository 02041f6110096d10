// The weir program on the other side of a pseudo terminal: what it draws is read, not rendered.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/cli_test.h"

namespace weir_cli::test {

class TerminalProcess {
 public:
  // `environment`: of these variables; `command`: a program and its arguments.
  TerminalProcess(unsigned short rows, unsigned short columns,
                  const std::vector<std::pair<const char*, const char*>>& environment,
                  std::vector<std::string> command) {
    winsize size = {rows, columns, 0, 0};
    process_ = forkpty(&handle_, nullptr, nullptr, &size);
    if (process_ == 0) {
      setenv("TERM", "xterm", 1);
      for (const auto& [name, value] : environment) setenv(name, value, 1);
      std::vector<char*> pointers;
      for (std::string& argument : command) pointers.push_back(argument.data());
      pointers.push_back(nullptr);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    assert_true(process_ > 0);
    tcgetattr(handle_, &before_);
  }
  TerminalProcess(const TerminalProcess&) = delete;
  virtual ~TerminalProcess() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(handle_);
  }

  void type(const std::string& keys) const {
    size_t done = 0;
    while (done < keys.size()) {
      const ssize_t n = write(handle_, keys.data() + done, std::min<size_t>(keys.size() - done, 256));
      if (n <= 0) return;
      done += static_cast<size_t>(n);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a person, or a paste in parts
    }
  }

  // Reads until `part` has come, after what was read before; then what came since is returned.
  std::string wait_for(const std::string& part) {
    read_until(part, [&] { return text_.find(part, seen_) != std::string::npos; });
    const size_t from = std::exchange(seen_, text_.find(part, seen_) + part.size());
    return text_.substr(from, seen_ - from);
  }

  // How it ended, once it has; what it wrote until then is in text().
  int wait_for_end() {
    for (char chunk[4096];;) {
      const ssize_t n = read(handle_, chunk, sizeof(chunk));
      if (n <= 0) break;
      text_.append(chunk, static_cast<size_t>(n));
    }
    int status = 0;
    waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

  void resize(unsigned short rows, unsigned short columns) const {
    winsize size = {rows, columns, 0, 0};
    ioctl(handle_, TIOCSWINSZ, &size);
  }
  void signal(int number) const { kill(process_, number); }
  const std::string& text() const { return text_; }
  termios mode() const {
    termios now = {};
    tcgetattr(handle_, &now);
    return now;
  }

  // Echo, lines and signals as they were when the program began, and no brackets around pastes.
  void assert_keys_restored() const {
    assert_int_equal(mode().c_lflag, before_.c_lflag);
    assert_true(text_.rfind("\x1b[?2004l") > text_.rfind("\x1b[?2004h"));
  }

 protected:
  template <class Fn>
  void read_until(const std::string& part, const Fn& has_come) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(90);
    while (!has_come()) {
      pollfd input = {handle_, POLLIN, 0};
      char chunk[4096];
      const ssize_t n = poll(&input, 1, 100) > 0 ? read(handle_, chunk, sizeof(chunk)) : 0;
      if (n > 0) {
        text_.append(chunk, static_cast<size_t>(n));
        on_text();
      }
      if (n < 0 || std::chrono::steady_clock::now() > end)
        fail_msg("the terminal never showed \"%s\": %s", part.c_str(), text_.substr(seen_).c_str());
    }
  }
  virtual void on_text() {}  // more has come

  std::string text_;
  size_t seen_ = 0;

 private:
  int handle_ = -1;
  pid_t process_ = 0;
  termios before_ = {};
};

}  // namespace weir_cli::test
