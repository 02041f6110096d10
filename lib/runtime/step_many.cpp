// One decode step of several sessions as one call: all or none of them append a token. On the CPU the sessions of a
// group share one pass of the decoder, whose activations are in the buffers of the group's first session; each session
// has its own pages, policy and logits. Sessions are entered without waiting, so threads whose lists overlap get an
// error and never a deadlock.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/session.h"

namespace weir {
namespace {

// The most rows of one pass; with so many, reading the weights is only a small part of the work.
constexpr uint32_t kMaxRows = 256;

// Calls f(first, n) for each group of sessions; `room(first)` is how many a group that begins at `first` may have.
template <class Room, class F>
Status for_each_group(uint32_t n, Room&& room, F&& f) {
  for (uint32_t first = 0; first < n;) {
    const uint32_t n_group = std::min(n - first, room(first));
    WEIR_TRY(f(first, n_group));
    first += n_group;
  }
  return {};
}

// Some sessions of a list.
struct Chosen {
  const SessionList* from = nullptr;
  uint32_t n = 0;
  uint32_t index[Session::kMaxTogetherSessions];

  static Session& at(const void* handles, uint32_t i) {
    const auto& chosen = *static_cast<const Chosen*>(handles);
    return (*chosen.from)[chosen.index[i]];
  }
};

// A device's failure, naming the `n` sessions it concerns by their indices in the caller's list.
Status failed_for(const char* text, Status status, uint32_t first, uint32_t n) {
  if (status.ok()) return status;
  if (n == 1) return fail(status.code(), "sessions[%u]: %s", first, text);
  return fail(status.code(), "sessions[%u] to sessions[%u]: %s", first, first + n - 1, text);
}

}  // namespace

// Holds all sessions for one thread and counts the allocations meanwhile, except those that callbacks make for
// themselves.
class Session::JointEntry {
 public:
  JointEntry(const SessionList& sessions, uint32_t n) : sessions_(sessions), allocs_(HostMemory::thread_allocs()) {
    for (; n_entered_ < n && !sessions[n_entered_].busy_.exchange(true); ++n_entered_)
      sessions[n_entered_].callback_allocs_ = 0;
    if (n_entered_ < n) status_ = refused();
  }
  ~JointEntry() {
    uint64_t allocs = HostMemory::thread_allocs() - allocs_;
    for (uint32_t i = 0; i < n_entered_; ++i) allocs -= sessions_[i].callback_allocs_;
    for (uint32_t i = 0; i < n_entered_; ++i) {
      Session& session = sessions_[i];
      session.late_allocs_.fetch_add(allocs, std::memory_order_relaxed);
      session.busy_.store(false);
    }
  }
  JointEntry(const JointEntry&) = delete;
  JointEntry& operator=(const JointEntry&) = delete;
  Status status() const { return status_; }

 private:
  // A busy session is either in use by another thread or twice in the list.
  Status refused() const {
    const Session* busy = &sessions_[n_entered_];
    for (uint32_t i = 0; i < n_entered_; ++i) {
      if (&sessions_[i] == busy)
        return fail(WEIR_ERR_INVALID_ARG, "sessions[%u] and sessions[%u] are the same session", i, n_entered_);
    }
    return fail(WEIR_ERR_BUSY, "another thread is inside sessions[%u]", n_entered_);
  }

  const SessionList& sessions_;
  uint32_t n_entered_ = 0;
  uint64_t allocs_;
  Status status_;
};

// Checks what never changes in a session, which may be read before the session is entered.
Status Session::check_together(const SessionList& sessions, uint32_t n) {
  const Session& first = sessions[0];
  for (uint32_t i = 1; i < n; ++i) {
    if (sessions[i].model_ != first.model_)
      return fail(WEIR_ERR_INVALID_ARG, "sessions[0] and sessions[%u] are of different models", i);
    if (sessions[i].module_ != first.module_)
      return fail(WEIR_ERR_INVALID_ARG, "sessions[0] and sessions[%u] are on different devices", i);
    if ((sessions[i].device_ == nullptr) != (first.device_ == nullptr))
      return fail(WEIR_ERR_INVALID_ARG, "of sessions[0] and sessions[%u] only one computes its attention on the host",
                  i);
  }
  return {};
}

Status Session::check_turn(weir_token token, uint32_t index) const {
  const uint32_t n = model_->config().vocab_size;
  if (token < 0 || static_cast<uint32_t>(token) >= n)
    return fail(WEIR_ERR_INVALID_ARG, "tokens[%u] = %d is not in 0..%u", index, token, n - 1);
  if (kv_.n_tokens() >= policy_->needs().context_tokens) {
    return fail(WEIR_ERR_CONTEXT_FULL, "all %u positions of the context of sessions[%u] are taken",
                policy_->needs().context_tokens, index);
  }
  return {};
}

// The call ends because of the first session that was cancelled; cancels of others stay for their next call, and those
// of sessions whose token was drawn for the next draw.
Status Session::take_cancels(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if (!sessions[i].was_drawn(tokens[i]) && sessions[i].take_cancel())
      return fail(WEIR_ERR_CANCELLED, "sessions[%u] was cancelled", i);
  }
  return {};
}

Status Session::check_devices(const SessionList& sessions, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if (sessions[i].device_->is_lost())
      return fail(WEIR_ERR_DEVICE_LOST, "the device failed earlier in sessions[%u]; destroy it", i);
  }
  return {};
}

Status Session::step_many(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  WEIR_TRY(check_together(sessions, n));
  JointEntry entry(sessions, n);
  WEIR_TRY(entry.status());
  for (uint32_t i = 0; i < n; ++i) WEIR_TRY(sessions[i].check_turn(tokens[i], i));
  WEIR_TRY(take_cancels(sessions, tokens, n));
  return sessions[0].device_ != nullptr ? run_device_together(sessions, tokens, n) : run_together(sessions, tokens, n);
}

// All groups go through the layers before the logits of any are computed, so that a cancel or a failure leaves all
// logits as they were. The logits need no more room than the matrix multiplications of the layers had.
Status Session::decode_together(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const auto room = [&](uint32_t first) {
    const Step& step = sessions[first].step_;
    return std::min(step.b.max_tok, step.device != nullptr ? kMaxTogether : kMaxRows);
  };
  const auto run = [&](Status (*part)(const StepGroup&)) {
    return for_each_group(n, room, [&](uint32_t first, uint32_t n_group) {
      Step* steps[kMaxRows];
      for (uint32_t i = 0; i < n_group; ++i) steps[i] = &sessions[first + i].step_;
      const Status status = part({steps, n_group});
      const bool failed_there = status.code() == WEIR_ERR_DEVICE_LOST || status.code() == WEIR_ERR_OUT_OF_MEMORY;
      return failed_there ? failed_for(last_error_text(), status, first, n_group) : status;
    });
  };
  const ThreadPool::Lease lease(sessions[0].pool_);
  const Status status = run(run_layers);
  // Also says which session was cancelled; it may be one whose group had finished its layers.
  WEIR_TRY(take_cancels(sessions, tokens, n));
  WEIR_TRY(status);
  const Status computed = run(run_logits);
  for (uint32_t i = 0; i < n && !computed.ok(); ++i) sessions[i].has_logits_ = false;  // some may be another step's
  return computed;
}

// Drops what several sessions reserved, unless it is committed.
class Session::JointReservation {
 public:
  JointReservation(const SessionList& sessions, uint32_t n) : sessions_(sessions), n_(n) {}
  ~JointReservation() {
    for (uint32_t i = 0; i < n_ && !committed_; ++i) sessions_[i].tables_.change()->rollback();
  }
  JointReservation(const JointReservation&) = delete;
  JointReservation& operator=(const JointReservation&) = delete;
  void commit() {
    for (uint32_t i = 0; i < n_; ++i) sessions_[i].tables_.change()->commit();
    committed_ = true;
  }

 private:
  const SessionList& sessions_;
  uint32_t n_;
  bool committed_ = false;
};

Status Session::run_together(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const uint64_t started = now_ns();
  JointReservation reservation(sessions, n);
  for (uint32_t i = 0; i < n; ++i) {
    const Status opened = sessions[i].open_step(tokens + i);
    if (!opened.ok()) return fail(opened.code(), "sessions[%u]: %s", i, last_error_text());
    // A step of many sessions may be long.
    sessions[i].step_.cancel = sessions[i].was_drawn(tokens[i]) ? nullptr : &sessions[i].cancel_;
  }
  WEIR_TRY(decode_together(sessions, tokens, n));
  reservation.commit();
  for (uint32_t i = 0; i < n; ++i) {
    Session& session = sessions[i];
    session.seal(session.kv_.n_tokens() - 1);
    session.finish_turn(tokens[i], started);
  }
  return {};
}

// The device commits a group's tokens itself. So whatever can fail without the device being lost happens before the
// first group's step. When the device is lost, sessions of earlier groups keep their token, as their counters show.
Status Session::run_device_together(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const uint64_t started = now_ns();
  const DeviceModule& module = *sessions[0].module_;
  const auto named = [&](Status status, uint32_t first, uint32_t n_failed) {
    return failed_for(status.ok() ? "" : module.last_error(), status, first, n_failed);
  };
  WEIR_TRY(check_devices(sessions, n));
  for (uint32_t i = 0; i < n; ++i) {
    const Status prepared = sessions[i].prepare_copies(1);
    if (!prepared.ok()) return fail(prepared.code(), "sessions[%u]: %s", i, last_error_text());
    WEIR_TRY(named(sessions[i].put_device_tables(), i, 1));
  }
  const auto for_each_device_group = [&](auto&& f) {
    const auto room = [](uint32_t) { return kMaxTogether; };
    return for_each_group(n, room, [&](uint32_t first, uint32_t n_group) {
      DeviceSession* group[kMaxTogether];
      for (uint32_t i = 0; i < n_group; ++i) group[i] = sessions[first + i].device_;
      return named(f(group, first, n_group), first, n_group);
    });
  };
  WEIR_TRY(for_each_device_group(
      [&](DeviceSession* const* group, uint32_t, uint32_t n_group) { return module.prepare_many(group, n_group); }));
  uint32_t n_stepped = 0;
  Status status = for_each_device_group([&](DeviceSession* const* group, uint32_t first, uint32_t n_group) {
    for (uint32_t i = first; i < first + n_group; ++i) sessions[i].tables_.leave_to_device();
    const Status stepped = module.step_many(group, tokens + first, n_group);
    if (stepped.ok()) n_stepped = first + n_group;
    return stepped;
  });
  for (uint32_t i = 0; i < n; ++i) {
    if (i < n_stepped) {
      const Status finished = sessions[i].finish_device_turn(tokens[i], started);
      if (status.ok()) status = finished;
    } else {
      sessions[i].greedy_from_device_ = false;
    }
  }
  return status;
}

// A session whose step was late steps again alone; the others have their token.
Status Session::finish_device_turn(weir_token token, uint64_t started) {
  if (cold_.is_on() && staging_.state->is_late != 0) {
    Status status = repair_late_step();
    if (status.ok()) status = step_on_device(token);
    if (!status.ok()) {
      greedy_from_device_ = false;
      return status;
    }
  }
  close_device_step();
  finish_turn(token, started);
  return cold_.is_on() ? seal_on_device(kv_.n_tokens() - 1) : Status();
}

void Session::finish_turn(weir_token token, uint64_t started) {
  count_step(token, started);
  if (!keeps_text_) detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(token));
}

// Whatever can fail happens before anything is taken from a session, so that no event is lost: text that waits goes
// back, and what was drawn is drawn again.
Status Session::next_many(const SessionList& sessions, uint32_t n, const EventList& events, uint32_t& n_running) {
  WEIR_TRY(check_together(sessions, n));
  JointEntry entry(sessions, n);
  WEIR_TRY(entry.status());
  const auto named = [](Status status, uint32_t i) {
    return status.ok() ? status : fail(status.code(), "sessions[%u]: %s", i, last_error_text());
  };
  for (uint32_t i = 0; i < n; ++i) {
    if (sessions[i].answer_.state != AnswerState::kNone) WEIR_TRY(named(sessions[i].check_answer(), i));
  }
  const auto event_at = [&](uint32_t i) { return events.bytes + uint64_t{i} * events.stride; };
  const auto put = [&](uint32_t i, const weir_event& event) {
    constexpr size_t kSkipped = sizeof(event.struct_size);
    std::memcpy(event_at(i) + kSkipped, reinterpret_cast<const std::byte*>(&event) + kSkipped,
                std::min<size_t>(events.stride, sizeof(event)) - kSkipped);
  };
  const auto begin_event = [&](uint32_t i) {
    weir_event event = WEIR_EVENT_INIT;
    event.n_tokens = sessions[i].kv_.n_tokens();
    event.logprob = NAN;
    event.text = "";
    return event;
  };
  enum : uint8_t { kNothing, kText, kToken, kEnd };
  uint8_t kinds[kMaxTogetherSessions];
  weir_token tokens[kMaxTogetherSessions];
  Chosen chosen;
  chosen.from = &sessions;
  Status status;
  uint32_t n_looked = 0;
  for (; n_looked < n && status.ok(); ++n_looked) {
    Session& session = sessions[n_looked];
    kinds[n_looked] = kNothing;
    if (session.answer_.state == AnswerState::kNone) continue;
    weir_event event = begin_event(n_looked);
    session.parts_.mark();
    if (session.give_text(event)) {
      kinds[n_looked] = kText;
      put(n_looked, event);
      continue;
    }
    kinds[n_looked] = kEnd;
    if (session.answer_.stop != WEIR_STOP_NONE) continue;
    weir_token token = -1;
    status = named(session.draw_for_answer(token, session.answer_.stop), n_looked);
    if (!status.ok()) continue;
    if (session.answer_.stop != WEIR_STOP_NONE) {
      session.answer_.ended_by = token;
      continue;
    }
    kinds[n_looked] = kToken;
    tokens[chosen.n] = token;
    chosen.index[chosen.n++] = n_looked;
  }
  if (status.ok() && chosen.n != 0) {
    const SessionList stepped = {&chosen, Chosen::at};
    for (uint32_t i = 0; i < chosen.n; ++i) stepped[i].keeps_text_ = true;
    status = stepped[0].device_ != nullptr ? run_device_together(stepped, tokens, chosen.n)
                                           : run_together(stepped, tokens, chosen.n);
    for (uint32_t i = 0; i < chosen.n; ++i) stepped[i].keeps_text_ = false;
  }
  if (!status.ok()) {
    for (uint32_t i = 0; i < n_looked; ++i) {
      if (kinds[i] == kText) sessions[i].parts_.take_back();
    }
    return status;
  }
  n_running = 0;
  for (uint32_t i = 0, k = 0; i < n; ++i) {
    Session& session = sessions[i];
    weir_event event = begin_event(i);
    if (kinds[i] == kToken) {
      session.give_token(tokens[k++], event);
    } else if (kinds[i] == kEnd) {
      session.end_answer(event);
    } else {
      event.kind = WEIR_EVENT_END;
    }
    if (kinds[i] != kText) put(i, event);
    n_running += session.answer_.state == AnswerState::kNone ? 0 : 1;
  }
  return {};
}

}  // namespace weir
