// Parallel work; see eval_work.h.
#include "eval_work.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "eval_progress.h"

namespace weir_cli {
namespace {

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
        progress_.done();
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
  // The library's own number: it knows the limits of a container.
  const size_t n_wanted = n_threads != 0 ? n_threads : weir_runtime_thread_count(create_runtime(0).get());
  Workers workers(model_path, n_units, fn);
  {
    std::vector<std::jthread> threads;  // joined at the end of the block
    for (size_t i = 1; i < std::min(n_wanted, n_units); ++i) threads.emplace_back([&] { workers.work(); });
    workers.work();
  }
  workers.finish();
}

}  // namespace weir_cli
