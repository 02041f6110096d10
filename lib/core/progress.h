// The progress callback of weir_model_open, and of turning text into tokens. It is told how many bytes of the file are
// done, and now and then the same number again while the description and the vocabulary are made from them, so that
// opening a large or hostile file can be stopped; or how many bytes of the text. A callback that throws asks for a
// stop, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/callback.h"
#include "core/status.h"
#include "weir/model.h"

namespace weir {

class OpenProgress {
 public:
  OpenProgress() = default;  // nobody listens
  // `what` begins the message of a stop.
  OpenProgress(weir_progress_fn fn, void* user, const char* what = "opening") : fn_(fn), user_(user), what_(what) {}

  // The size of the file, told with every call.
  void set_total(uint64_t bytes) { total_ = all_parts_ != 0 ? all_parts_ : bytes; }
  // What follows is about one of several files: `before` bytes are in those before it, `all` in all of them. 0 and 0:
  // it is alone.
  void set_part(uint64_t before, uint64_t all) {
    before_ = before;
    all_parts_ = all;
  }
  // Tells that all is done, unless that was the last thing told.
  Status complete() { return told_ == total_ ? Status() : tell_all(total_); }
  // Tells again what was told last.
  Status repeat() { return tell_all(done_); }

  // Tells how many bytes of the file are done. WEIR_ERR_CANCELLED when the callback wants no more.
  Status tell(uint64_t done) { return tell_all(before_ + done); }

  // One entry of the file (a key, a string of an array, a tensor) or of a table made from it is dealt with.
  Status step() { return ++n_entries_ % kEntries != 0 ? Status() : repeat(); }

  // Work on so many bytes, of which `n_done` are done then.
  Status work(uint64_t bytes, uint64_t n_done) {
    done_ = std::min(total_, done_ + n_done);
    n_worked_ += bytes;
    if (fn_ == nullptr || n_worked_ < kWorkBytes) return {};
    n_worked_ = 0;
    return repeat();
  }

  // std::sort, every comparison being a step: a long list can be stopped, and is then in any order.
  template <class Iterator, class Less>
  Status sort(Iterator begin, Iterator end, const Less& less) {
    Status stopped;
    struct Stop {};
    try {
      std::sort(begin, end, [&](const auto& a, const auto& b) {
        stopped = step();
        if (!stopped.ok()) throw Stop();
        return less(a, b);
      });
    } catch (const Stop&) {
    }
    return stopped;
  }

 private:
  Status tell_all(uint64_t done) {
    done_ = told_ = done;
    if (fn_ == nullptr) return {};
    const weir_progress_info info = {sizeof(weir_progress_info), 0, done, total_};
    const Answer answer = call_back([&] { return fn_(user_, &info); });
    if (answer.agreed) return {};
    return fail(WEIR_ERR_CANCELLED, "%s was cancelled by its progress callback at byte %llu of %llu%s", what_,
                static_cast<unsigned long long>(done), static_cast<unsigned long long>(total_), answer.why());
  }

  static constexpr uint64_t kEntries = 8192;  // a millisecond or less between two calls

  static constexpr uint64_t kWorkBytes = uint64_t{1} << 16;  // of text, some 20 ms

  weir_progress_fn fn_ = nullptr;
  void* user_ = nullptr;
  uint64_t total_ = 0, done_ = 0;
  uint64_t before_ = 0, all_parts_ = 0;
  uint64_t n_entries_ = 0, n_worked_ = 0, told_ = 0;
  const char* what_ = "";
};

}  // namespace weir
