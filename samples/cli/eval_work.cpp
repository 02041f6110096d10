// Parallel work; see eval_work.h.
#include "eval_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "options.h"
#include "terminal.h"

namespace weir_cli {
namespace {

using Clock = std::chrono::steady_clock;

// "12:05", "1:02:05".
std::string clock_text(double seconds) {
  const auto total = static_cast<long>(seconds + 0.5);
  const long hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? format("%ld:%02ld:%02ld", hours, minutes, total % 60) : format("%ld:%02ld", minutes, total % 60);
}

class Progress {
 public:
  explicit Progress(size_t n_units) : n_units_(n_units), on_terminal_(stderr_is_terminal()) {
    if (on_terminal_) line_.update([&] { return text(true); });
  }

  void unit_done() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++n_done_;
    if (on_terminal_) {
      line_.update([&] { return text(true); });
    } else if (n_done_ * 10 / n_units_ != (n_done_ - 1) * 10 / n_units_) {
      std::fprintf(stderr, "%s\n", text(false).c_str());
    }
  }

 private:
  std::string text(bool with_bar) const {
    const double part = static_cast<double>(n_done_) / static_cast<double>(n_units_);
    const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    std::string line = with_bar ? bar(part, 24) + " " : "";
    line += format("%zu of %zu  %3.0f%%  %s", n_done_, n_units_, 100 * part, clock_text(elapsed).c_str());
    if (n_done_ > 0 && n_done_ < n_units_) line += "  " + clock_text(elapsed / part - elapsed) + " left";
    return line;
  }

  size_t n_units_;
  bool on_terminal_;
  ProgressLine line_;
  std::mutex mutex_;
  size_t n_done_ = 0;
  Clock::time_point start_ = Clock::now();
};

// What the threads share.
class Workers {
 public:
  Workers(const std::string& model_path, size_t n_units, const UnitFn& fn)
      : model_path_(model_path), n_units_(n_units), fn_(fn), progress_(n_units) {}

  void work() {
    try {
      const RuntimePtr runtime = create_runtime(1);
      const ModelPtr model = open_model(runtime.get(), model_path_);
      for (size_t unit; !stop_ && (unit = next_.fetch_add(1)) < n_units_;) {
        fn_(model.get(), unit);
        progress_.unit_done();
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!thrown_) thrown_ = std::current_exception();
      stop_ = true;
    }
  }

  void finish() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  const std::string& model_path_;
  size_t n_units_;
  const UnitFn& fn_;
  Progress progress_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr thrown_;
};

}  // namespace

void run_units(const std::string& model_path, uint32_t n_threads, size_t n_units, const UnitFn& fn) {
  if (n_units == 0) return;
  const size_t n_wanted = n_threads != 0 ? n_threads : std::max(1u, std::thread::hardware_concurrency());
  Workers workers(model_path, n_units, fn);
  {
    std::vector<std::jthread> threads;  // joined at the end of the block
    for (size_t i = 1; i < std::min(n_wanted, n_units); ++i) threads.emplace_back([&] { workers.work(); });
    workers.work();
  }
  workers.finish();
}

}  // namespace weir_cli
