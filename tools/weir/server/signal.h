// A flag that a thread sets and another one waits for together with a socket (eventfd). Setting it never waits.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>

namespace weir_server {

class Signal {
 public:
  Signal() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error("too many open files");
  }
  ~Signal() { ::close(fd_); }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  void set() {
    const uint64_t one = 1;
    while (::write(fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }
  void clear() {
    uint64_t count = 0;
    while (::read(fd_, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace weir_server
