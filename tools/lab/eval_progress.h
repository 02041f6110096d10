// How far an evaluation is, on stderr: a bar on a terminal, otherwise a line every tenth.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

#include "terminal.h"

namespace weir_cli {

class Progress {
 public:
  // Shown on stderr, unless it is quiet.
  explicit Progress(size_t n_units, bool is_quiet = false);

  void done(size_t n_units = 1);  // any thread

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(bool with_bar) const;

  size_t n_units_;
  bool is_quiet_, on_terminal_;
  ProgressLine line_;
  std::mutex mutex_;
  size_t n_done_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace weir_cli
