// What calls into a session have in common: the guard that they hold, steps, and answers.
#pragma once

#include "core/clock.h"
#include "runtime/session.h"

namespace weir {

// Holds the session for one thread and counts the allocations meanwhile, except those that callbacks make for
// themselves.
class Session::Entry {
 public:
  explicit Entry(Session& session)
      : session_(session), entered_(!session.busy_.exchange(true)), allocs_(HostMemory::thread_allocs()) {
    if (entered_) session.call_outs_.restart();
  }
  ~Entry() {
    if (!entered_) return;
    session_.late_allocs_.fetch_add(HostMemory::thread_allocs() - allocs_ - session_.call_outs_.allocs(),
                                    std::memory_order_relaxed);
    session_.busy_.store(false);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  Status status() const { return entered_ ? Status() : fail(WEIR_ERR_BUSY, "another thread is inside this session"); }

 private:
  Session& session_;
  bool entered_;
  uint64_t allocs_;
};

// One thread at a time, without the counting.
class Session::Lock {
 public:
  explicit Lock(Session& session) : session_(session), entered_(!session.busy_.exchange(true)) {}
  ~Lock() {
    if (entered_) session_.busy_.store(false);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  Status status() const { return entered_ ? Status() : fail(WEIR_ERR_BUSY, "another thread is inside this session"); }

 private:
  Session& session_;
  bool entered_;
};

// A step of the session's machine, from its beginning. A step that failed is not counted.
class Session::Stepping {
 public:
  explicit Stepping(Session& session) : Stepping(session, now_ns()) {}
  Stepping(Session& session, uint64_t started) : s_(session), started_(started) { session.is_used_ = true; }
  void count(weir_token token);

 private:
  Session& s_;
  uint64_t started_;
};

// What answers of both kinds do.
struct Session::Answers {
  static Status open(Session& session, const weir_generate_options& options);
  // Whether one that is pulled can go on.
  static Status check(const Session& session) {
    WEIR_TRY(session.answering_.check_place());
    return session.check_logits();
  }
  // Draws a token for the answer, or says why it ends: `token` is then what ended it, or -1.
  static Status draw(Session& session, weir_token& token, int32_t& stop);
};

}  // namespace weir
