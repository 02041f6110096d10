// What stops calls: a flag of their own, and one that others may share, which outlives them.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir {

// Counted by those who hold it. api/cancel.cpp makes it.
struct SharedCancel {
  std::atomic<uint32_t> n_refs{1};
  std::atomic<bool> is_set{false};
};
static_assert(std::atomic<bool>::is_always_lock_free, "a cancel is set in signal handlers");

void retain(SharedCancel* cancel);
void release(SharedCancel* cancel);  // null is allowed

class Cancel {
 public:
  Cancel() = default;
  ~Cancel() { release(shared_); }
  Cancel(const Cancel&) = delete;
  Cancel& operator=(const Cancel&) = delete;

  // Any thread, also in a signal handler: of the own flag.
  void set() { own_.store(true); }
  void clear() { own_.store(false); }
  // Whoever calls these two has the session; a call that looks at the flags runs meanwhile only on other threads of
  // the same call.
  void share(SharedCancel* cancel) {  // null: none
    if (cancel != nullptr) retain(cancel);
    release(shared_);
    shared_ = cancel;
  }
  // Clears the own flag; a shared one stays as long as its owner wants.
  bool take() { return own_.exchange(false) || is_shared_set(); }
  bool is_set() const { return own_.load(std::memory_order_relaxed) || is_shared_set(); }

 private:
  bool is_shared_set() const { return shared_ != nullptr && shared_->is_set.load(std::memory_order_relaxed); }

  std::atomic<bool> own_{false};
  SharedCancel* shared_ = nullptr;
};

}  // namespace weir
