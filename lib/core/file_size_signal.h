// A write beyond the process's limit of file sizes (RLIMIT_FSIZE) fails with EFBIG, and also sends SIGXFSZ to the
// calling thread, which ends a process that has no handler for it. While an object of this class lives, the thread does
// not get that signal; a signal that was waiting before, or that the thread has blocked itself, is left alone. Handlers
// and other threads are not touched.
//
// Every call of the library that may make a file longer is under one of these.
#pragma once

#include <signal.h>
#include <time.h>

#include <cerrno>

namespace weir {

class FileSizeSignal {
 public:
  FileSizeSignal() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGXFSZ);
    was_pending_ = is_pending();
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~FileSizeSignal() {
    const int error = errno;  // of the call that this is around
    if (!was_pending_ && is_pending()) {
      const timespec at_once = {};
      while (sigtimedwait(&set_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  static bool is_pending() {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  }

  sigset_t set_, before_;
  bool was_pending_;
};

}  // namespace weir
