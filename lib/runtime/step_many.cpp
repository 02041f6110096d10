// One decode step of several sessions as one call: all or none of them append a token. On the CPU the sessions of a
// group share one pass of the decoder, whose activations are in the buffers of the group's first session; each session
// has its own pages, policy and logits. Sessions are entered without waiting, so threads whose lists overlap get an
// error and never a deadlock.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/step_many.h"

#include "runtime/machine_device.h"
#include "runtime/machine_host.h"
#include "runtime/session_entry.h"

namespace weir {
namespace {

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
  uint32_t index[kMaxTogetherSessions];

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

// What these functions do inside a session.
struct Session::Together {
  class Entry;
  class Reservation;
  class Round;
  static Status check(const SessionList& sessions, uint32_t n);
  static Status check_turn(const Session& session, weir_token token, uint32_t index);
  static Status take_cancels(const SessionList& sessions, const weir_token* tokens, uint32_t n);
  static Status step(const SessionList& sessions, const weir_token* tokens, uint32_t n);
  static Status step_on_host(const SessionList& sessions, const weir_token* tokens, uint32_t n);
  static Status decode(const SessionList& sessions, const weir_token* tokens, uint32_t n);
  static Status prepare_device_step(const SessionList& sessions, uint32_t n);
  static Status step_on_device(const SessionList& sessions, const weir_token* tokens, uint32_t n);
  static Status end_device_turn(Session& session, weir_token token, uint64_t started);
  static void end_turn(Session& session, weir_token token, uint64_t started);
  static HostMachine& host(const SessionList& sessions, uint32_t i) {
    return static_cast<HostMachine&>(*sessions[i].machine_);
  }
  static DeviceMachine& device(const SessionList& sessions, uint32_t i) {
    return static_cast<DeviceMachine&>(*sessions[i].machine_);
  }
};

// Holds all sessions for one thread and counts the allocations meanwhile, except those that callbacks make for
// themselves.
class Session::Together::Entry {
 public:
  Entry(const SessionList& sessions, uint32_t n) : sessions_(sessions), allocs_(HostMemory::thread_allocs()) {
    for (; n_entered_ < n && !sessions[n_entered_].busy_.exchange(true); ++n_entered_)
      sessions[n_entered_].call_outs_.restart();
    if (n_entered_ < n) status_ = refused();
  }
  ~Entry() {
    uint64_t allocs = HostMemory::thread_allocs() - allocs_;
    for (uint32_t i = 0; i < n_entered_; ++i) allocs -= sessions_[i].call_outs_.allocs();
    for (uint32_t i = 0; i < n_entered_; ++i) {
      Session& session = sessions_[i];
      session.counters_.late_allocs.add(allocs);
      session.busy_.store(false);
    }
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
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
Status Session::Together::check(const SessionList& sessions, uint32_t n) {
  const Session& first = sessions[0];
  for (uint32_t i = 1; i < n; ++i) {
    if (sessions[i].model_ != first.model_)
      return fail(WEIR_ERR_INVALID_ARG, "sessions[0] and sessions[%u] are of different models", i);
    if (sessions[i].machine_->module() != first.machine_->module())
      return fail(WEIR_ERR_INVALID_ARG, "sessions[0] and sessions[%u] are on different devices", i);
    if (sessions[i].machine_->kind() != first.machine_->kind())
      return fail(WEIR_ERR_INVALID_ARG, "of sessions[0] and sessions[%u] only one computes its attention on the host",
                  i);
  }
  return {};
}

Status Session::Together::check_turn(const Session& s, weir_token token, uint32_t index) {
  const uint32_t n = s.model_->config().vocab_size, context = s.policy_->needs().context_tokens;
  if (token < 0 || static_cast<uint32_t>(token) >= n)
    return fail(WEIR_ERR_INVALID_ARG, "tokens[%u] = %d is not in 0..%u", index, token, n - 1);
  if (s.kv_.n_tokens() < context) return {};
  return fail(WEIR_ERR_CONTEXT_FULL, "all %u positions of the context of sessions[%u] are taken", context, index);
}

// The call ends because of the first session that was cancelled; cancels of others stay for their next call, and those
// of sessions whose token was drawn for the next draw.
Status Session::Together::take_cancels(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if (!sessions[i].was_drawn(tokens[i]) && sessions[i].cancel_.take())
      return fail(WEIR_ERR_CANCELLED, "sessions[%u] was cancelled", i);
  }
  return {};
}

Status Session::Together::step(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const bool on_device = sessions[0].machine_->kind() == Machine::Kind::kDevice;
  return on_device ? step_on_device(sessions, tokens, n) : step_on_host(sessions, tokens, n);
}

Status step_many(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  using Together = Session::Together;
  WEIR_TRY(Together::check(sessions, n));
  Together::Entry entry(sessions, n);
  WEIR_TRY(entry.status());
  for (uint32_t i = 0; i < n; ++i) WEIR_TRY(Together::check_turn(sessions[i], tokens[i], i));
  WEIR_TRY(Together::take_cancels(sessions, tokens, n));
  return Together::step(sessions, tokens, n);
}

// All groups go through the layers before the logits of any are computed, so that a cancel or a failure leaves all
// logits as they were. The logits need no more room than the matrix multiplications of the layers had.
Status Session::Together::decode(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const auto room = [&](uint32_t first) { return host(sessions, first).max_together(); };
  const auto run = [&](Status (*part)(const StepGroup&)) {
    return for_each_group(n, room, [&](uint32_t first, uint32_t n_group) {
      Step* steps[HostMachine::kMaxRows];
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
class Session::Together::Reservation {
 public:
  Reservation(const SessionList& sessions, uint32_t n) : sessions_(sessions), n_(n) {}
  ~Reservation() {
    for (uint32_t i = 0; i < n_ && !committed_; ++i) {
      const PageTables::Change taking_back = sessions_[i].tables_.change();
      sessions_[i].remembered_.list.roll_back(taking_back->n_tokens());
    }
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  void commit() {
    for (uint32_t i = 0; i < n_; ++i) sessions_[i].tables_.change()->commit();
    committed_ = true;
  }

 private:
  const SessionList& sessions_;
  uint32_t n_;
  bool committed_ = false;
};

Status Session::Together::step_on_host(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const uint64_t started = now_ns();
  Reservation reservation(sessions, n);
  for (uint32_t i = 0; i < n; ++i) {
    const Status opened = host(sessions, i).open_step(tokens + i);
    if (!opened.ok()) return fail(opened.code(), "sessions[%u]: %s", i, last_error_text());
    // A step of many sessions may be long.
    sessions[i].step_.cancel = sessions[i].was_drawn(tokens[i]) ? nullptr : &sessions[i].cancel_;
  }
  WEIR_TRY(decode(sessions, tokens, n));
  reservation.commit();
  for (uint32_t i = 0; i < n; ++i) {
    sessions[i].remembered_.list.seal(sessions[i].kv_.n_tokens() - 1, sessions[i].kv_.n_tokens());
    end_turn(sessions[i], tokens[i], started);
  }
  return {};
}

// Whatever can fail without the device being lost.
Status Session::Together::prepare_device_step(const SessionList& sessions, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if (device(sessions, i).is_lost())
      return fail(WEIR_ERR_DEVICE_LOST, "the device failed earlier in sessions[%u]; destroy it", i);
    if (sessions[i].trace_.fn != nullptr)
      return fail(WEIR_ERR_UNSUPPORTED, "sessions[%u] is traced: on a device it steps alone (weir_session_step)", i);
  }
  for (uint32_t i = 0; i < n; ++i) {
    const Status prepared = device(sessions, i).prepare_copies(1);
    if (!prepared.ok()) return fail(prepared.code(), "sessions[%u]: %s", i, last_error_text());
    const Status sent = device(sessions, i).send_tables();
    if (!sent.ok()) return failed_for(sessions[0].machine_->module()->last_error(), sent, i, 1);
  }
  return {};
}

// The device commits a group's tokens itself. So whatever else can fail happens before the first group's step. When the
// device is lost, sessions of earlier groups keep their token, as their counters show.
Status Session::Together::step_on_device(const SessionList& sessions, const weir_token* tokens, uint32_t n) {
  const uint64_t started = now_ns();
  const DeviceModule& module = *sessions[0].machine_->module();
  if (n == 1 && sessions[0].trace_.fn != nullptr) {
    WEIR_TRY(sessions[0].machine_->step(tokens[0]));
    end_turn(sessions[0], tokens[0], started);
    return {};
  }
  WEIR_TRY(prepare_device_step(sessions, n));
  const auto for_each_device_group = [&](auto&& f) {
    const auto room = [](uint32_t) { return kMaxTogether; };
    return for_each_group(n, room, [&](uint32_t first, uint32_t n_group) {
      DeviceSession* group[kMaxTogether];
      for (uint32_t i = 0; i < n_group; ++i) group[i] = device(sessions, first + i).device();
      const Status status = f(group, first, n_group);
      return status.ok() ? status : failed_for(module.last_error(), status, first, n_group);
    });
  };
  WEIR_TRY(for_each_device_group(
      [&](DeviceSession* const* group, uint32_t, uint32_t n_group) { return module.prepare_many(group, n_group); }));
  uint32_t n_stepped = 0;
  Status status = for_each_device_group([&](DeviceSession* const* group, uint32_t first, uint32_t n_group) {
    for (uint32_t i = first; i < first + n_group; ++i) device(sessions, i).begin_step();
    const Status stepped = module.step_many(group, tokens + first, n_group);
    if (stepped.ok()) n_stepped = first + n_group;
    return stepped;
  });
  for (uint32_t i = 0; i < n; ++i) {
    if (i < n_stepped) {
      const Status ended = end_device_turn(sessions[i], tokens[i], started);
      if (status.ok()) status = ended;
    } else {
      device(sessions, i).lose_step();
    }
  }
  return status;
}

// A session whose step was late steps again alone; the others have their token.
Status Session::Together::end_device_turn(Session& session, weir_token token, uint64_t started) {
  auto& machine = static_cast<DeviceMachine&>(*session.machine_);
  WEIR_TRY(machine.end_step(token));
  end_turn(session, token, started);
  return machine.seal_step();
}

void Session::Together::end_turn(Session& s, weir_token token, uint64_t started) {
  Stepping(s, started).count(token);
  if (!s.keeps_text_)
    s.detokenizer_.reset(&s.model_->tokenizer(), false, s.model_->tokenizer().starts_text_after(token));
}

// The next event of each answer. Whatever can fail happens before anything is taken from a session, so that no event is
// lost: text that waits goes back, and what was drawn is drawn again.
class Session::Together::Round {
 public:
  Round(const SessionList& sessions, uint32_t n, const EventList& events)
      : sessions_(sessions), n_(n), events_(events) {
    chosen_.from = &sessions;
  }

  Status run(uint32_t& n_running) {
    for (uint32_t i = 0; i < n_; ++i) {
      if (runs(i)) WEIR_TRY(named(Answers::check(sessions_[i]), i));
    }
    Status status;
    for (; n_looked_ < n_ && status.ok(); ++n_looked_) status = look(n_looked_);
    if (status.ok() && chosen_.n != 0) status = step();
    if (status.ok()) {
      n_running = give_events();
      return {};
    }
    for (uint32_t i = 0; i < n_looked_; ++i) {
      if (kinds_[i] == kText) sessions_[i].answering_.take_text_back();
    }
    return status;
  }

 private:
  enum Kind : uint8_t { kNothing, kText, kToken, kEnd };

  static Status named(Status status, uint32_t i) {
    return status.ok() ? status : fail(status.code(), "sessions[%u]: %s", i, last_error_text());
  }
  bool runs(uint32_t i) const { return sessions_[i].answering_.state().runs(); }

  weir_event begin_event(uint32_t i) const {
    weir_event event = WEIR_EVENT_INIT;
    event.n_tokens = sessions_[i].kv_.n_tokens();
    event.logprob = NAN;
    event.text = "";
    return event;
  }
  void put(uint32_t i, const weir_event& event) const {
    constexpr size_t kSkipped = sizeof(event.struct_size);
    std::memcpy(events_.bytes + uint64_t{i} * events_.stride + kSkipped,
                reinterpret_cast<const std::byte*>(&event) + kSkipped,
                std::min<size_t>(events_.stride, sizeof(event)) - kSkipped);
  }

  // What the session's event will be: text that waits, or what is drawn.
  Status look(uint32_t i) {
    Session& s = sessions_[i];
    kinds_[i] = kNothing;
    if (!runs(i)) return {};
    weir_event event = begin_event(i);
    s.answering_.mark();
    if (s.answering_.give_text(event)) {
      kinds_[i] = kText;
      put(i, event);
      return {};
    }
    kinds_[i] = kEnd;
    if (s.answering_.state().stop != WEIR_STOP_NONE) return {};
    weir_token token = -1;
    int32_t stop = WEIR_STOP_NONE;
    WEIR_TRY(named(Answers::draw(s, token, stop), i));
    if (stop != WEIR_STOP_NONE) {
      s.answering_.end_by(token, stop);
      return {};
    }
    kinds_[i] = kToken;
    tokens_[chosen_.n] = token;
    chosen_.index[chosen_.n++] = i;
    return {};
  }

  Status step() {
    const SessionList stepped = {&chosen_, Chosen::at};
    for (uint32_t i = 0; i < chosen_.n; ++i) stepped[i].keeps_text_ = true;
    const Status status = Together::step(stepped, tokens_, chosen_.n);
    for (uint32_t i = 0; i < chosen_.n; ++i) stepped[i].keeps_text_ = false;
    return status;
  }

  // Returns how many answers go on.
  uint32_t give_events() {
    uint32_t n_running = 0;
    for (uint32_t i = 0, k = 0; i < n_; ++i) {
      Session& s = sessions_[i];
      weir_event event = begin_event(i);
      if (kinds_[i] == kToken) {
        s.answering_.give_token(tokens_[k++], event);
      } else if (kinds_[i] == kEnd) {
        s.answering_.give_end(event);
      } else {
        event.kind = WEIR_EVENT_END;
      }
      if (kinds_[i] != kText) put(i, event);
      n_running += runs(i) ? 1 : 0;
    }
    return n_running;
  }

  const SessionList& sessions_;
  uint32_t n_, n_looked_ = 0;
  EventList events_;
  Kind kinds_[kMaxTogetherSessions];
  weir_token tokens_[kMaxTogetherSessions];
  Chosen chosen_;
};

Status next_many(const SessionList& sessions, uint32_t n, const EventList& events, uint32_t& n_running) {
  using Together = Session::Together;
  WEIR_TRY(Together::check(sessions, n));
  Together::Entry entry(sessions, n);
  WEIR_TRY(entry.status());
  return Together::Round(sessions, n, events).run(n_running);
}

}  // namespace weir
