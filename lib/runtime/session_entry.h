// What calls into a session have in common: the guard that they hold, steps, and answers.
#pragma once

#include "core/clock.h"
#include "runtime/session.h"

namespace weir {

// Whether the model has such a token.
Status check_token(const Model& model, weir_token token);

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
    session_.counters_.late_allocs.add(HostMemory::thread_allocs() - allocs_ - session_.call_outs_.allocs());
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

// Reads a prompt behind what the conversation has (prefill.cpp), whose tables are current.
struct Session::Reading {
  // is_message: the conversation may go back to where it ends, with another answer.
  static Status read(Session& s, std::span<const weir_token> tokens, bool is_message, weir_progress_fn progress,
                     void* user);
};

// Going back (rewind.cpp). The conversation's tables are current.
struct Session::Rewinding {
  // Goes back to the first n_tokens. flags: WEIR_REWIND_*.
  static Status rewind_to(Session& s, uint32_t n_tokens, uint32_t flags);
  // What the store has lost since somebody looked.
  static void look_at_losses(Session& s);
  // Checks that going back is possible. n_kept: how many of the n_tokens can stay as they are; if a lossy rewind cuts a
  // page that is lost, all before that page.
  static Status find_lost(const Session& s, uint32_t n_tokens, bool lossy, uint32_t& n_kept);
  // Pages of the first n_tokens that are lost, summed over the streams, without those that a window hides.
  static uint64_t pages_missing(const Session& s, uint32_t n_tokens);

 private:
  static Status cut_to(Session& s, uint32_t n_tokens);
  static Status fail_to_read(const Session& s, uint32_t n_tokens);
  static Status forget_after_cut(Session& s);
  static Status read_again(Session& s, uint32_t n_tokens);
};

}  // namespace weir
