// Progress of an evaluation; see eval_progress.h.
#include "eval_progress.h"

#include <cstdio>

#include "options.h"

namespace weir_cli {
namespace {

// "12:05", "1:02:05".
std::string clock_text(double seconds) {
  const auto total = static_cast<long>(seconds + 0.5);
  const long hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? format("%ld:%02ld:%02ld", hours, minutes, total % 60) : format("%ld:%02ld", minutes, total % 60);
}

}  // namespace

Progress::Progress(size_t n_units, bool is_quiet)
    : n_units_(n_units), is_quiet_(is_quiet), on_terminal_(!is_quiet && stderr_is_terminal()) {
  if (on_terminal_) line_.update([&] { return text(true); });
}

void Progress::done(size_t n_units) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t n_before = n_done_;
  n_done_ += n_units;
  if (on_terminal_) {
    line_.update([&] { return text(true); });
  } else if (!is_quiet_ && n_done_ * 10 / n_units_ != n_before * 10 / n_units_) {
    std::fprintf(stderr, "%s\n", text(false).c_str());
  }
}

std::string Progress::text(bool with_bar) const {
  const double part = static_cast<double>(n_done_) / static_cast<double>(n_units_);
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line = with_bar ? bar(part, 24) + " " : "";
  line += format("%zu of %zu  %3.0f%%  %s", n_done_, n_units_, 100 * part, clock_text(elapsed).c_str());
  if (n_done_ > 0 && n_done_ < n_units_) line += "  " + clock_text(elapsed / part - elapsed) + " left";
  return line;
}

}  // namespace weir_cli
