// The sessions of the server and the one thread that computes in them. Requests wait in a queue for a free session; the
// answers that run together make their steps together, and prompts are read in pieces between these steps. No call
// of the thread waits for a client: what it computes waits in the memory of its job.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "options.h"
#include "server/signal.h"
#include "weir_cpp.h"

namespace weir_server {

using Clock = std::chrono::steady_clock;

// One answer to compute.
struct Task {
  std::vector<weir_token> prompt;
  weir_cli::SamplingFlags sampling;
  weir_cli::AnswerOptions answer;
  std::shared_ptr<weir_constraint> constraint;  // null: none
  std::string conversation;                     // as the client calls it, or ""
};

struct Logprob {
  weir_token token;
  float logprob;
};

// What an event of the library brought.
struct Piece {
  std::string text;
  int32_t segment;   // WEIR_SEGMENT_*
  weir_token token;  // -1: none
  float logprob;
  std::vector<Logprob> top;
};

struct Beginning {
  uint32_t session, prompt_tokens, cached_tokens;
};

struct Ending {
  int32_t stop = WEIR_STOP_NONE;  // WEIR_STOP_ERROR: `error` and `status` say why
  std::string error;
  weir_status status = WEIR_OK;
  std::string stop_string;
  uint32_t n_tokens = 0, n_thought = 0;  // tokens of the answer, and of these in thoughts
  double tokens_per_second = 0;
  uint64_t kv_bytes = 0, kv_budget_bytes = 0, dense_bytes = 0;
  uint64_t recalled_pages = 0, dropped_pages = 0;  // of all streams; the second also while the prompt was read
  std::string tool_calls;                          // as weir_session_answer has them, JSON or ""
  bool has_malformed_call = false;
};

class Pool;

// An answer between the thread that computes it and the one that sends it.
class Job {
 public:
  // `signal` is set when there is something to take; several answers to one request may share it.
  Job(Task task, std::shared_ptr<Signal> signal);

  // What the sender gets.
  struct Update {
    std::optional<Beginning> beginning;
    uint32_t n_read = 0, n_to_read = 0;  // tokens of the prompt
    std::vector<Piece> pieces;
    std::optional<Ending> ending;
  };
  // What came since the last call.
  Update take();
  // Any thread that holds no lock of the pool. The answer ends within a step, also where it waits.
  void cancel();
  void finish_thinking() { finishes_thinking_ = true; }

 private:
  friend class Pool;
  void mark_cancelled();  // without waking the pool
  void end(Ending ending);

  Task task_;
  Pool* pool_ = nullptr;  // that it was given to
  std::shared_ptr<Signal> signal_;
  std::atomic<bool> is_cancelled_{false}, finishes_thinking_{false};
  std::unique_ptr<weir_cancel, weir_cli::Closer<weir_cancel_release>> cancel_;
  // What only the thread that computes uses.
  uint32_t n_tokens_ = 0, n_thought_ = 0;
  Clock::time_point begun_at_;
  uint64_t recalled_before_ = 0, dropped_before_ = 0;

  std::mutex mutex_;
  Update update_;
};

// A session as it was at a moment.
struct SessionState {
  uint32_t id = 0;
  const char* state = "idle";  // "prompt", "decode"
  std::string conversation;
  uint32_t n_tokens = 0;
  uint64_t kv_bytes = 0, kv_budget_bytes = 0, dense_bytes = 0, store_bytes = 0, store_raw_bytes = 0;
  uint64_t recalled_pages = 0, dropped_pages = 0;
  double tokens_per_second = 0;
  std::string pages;
  uint64_t version = 0;  // grows with each change
};

class Pool {
 public:
  // Creates the sessions and starts the thread. Throws Error.
  Pool(weir_model* model, const weir_cli::SessionFlags& flags, uint32_t n_sessions, uint32_t queue_limit);
  ~Pool();

  enum class Submitted { kYes, kQueueIsFull, kIsStopping, kHasNoSessions };
  // Queues answers to one request.
  Submitted submit(const std::vector<std::shared_ptr<Job>>& jobs);
  size_t n_waiting() const;
  // All answers end, those that wait, too.
  void stop();

  weir_cli::SessionFlags flags() const;
  uint32_t n_sessions() const;
  weir_plan_info plan() const;  // of each session
  // Makes all sessions anew; they are empty then. False: an answer runs or waits. Throws Error: settings that cannot be
  // planned change nothing; where memory ran out the sessions are made anew as they were before, and if not even that
  // goes there are none, and nothing is taken, until another call has made some.
  bool remake(const weir_cli::SessionFlags& flags, uint32_t n_sessions);

  // States of all sessions, as of the last event.
  std::vector<SessionState> states() const;
  // `signal` is set when a state or the queue has changed, until unsubscribe().
  void subscribe(Signal* signal);
  void unsubscribe(Signal* signal);

  // An idle session, which no answer gets as long as this lives.
  class Lease {
   public:
    Lease(Pool* pool, size_t slot) : pool_(pool), slot_(slot) {}
    Lease(Lease&& other) noexcept : pool_(other.pool_), slot_(other.slot_) { other.pool_ = nullptr; }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease();
    weir_session* session() const;
    uint32_t id() const;
    void set_conversation(const std::string& name);

   private:
    Pool* pool_;
    size_t slot_;
  };
  // The one that holds this conversation and was used last, or if `any` the one that was not used for the longest time.
  // None: there is none, or it is not idle.
  std::optional<Lease> lease(const std::string& conversation, bool any);
  bool holds(const std::string& conversation) const;

 private:
  friend class Job;
  enum class State { kIdle, kTaken, kPrompt, kDecode };
  struct Slot {
    weir_cli::SessionPtr session;
    State state = State::kIdle;
    std::shared_ptr<Job> job;
    std::string conversation;
    uint64_t last_used = 0;
    double tokens_per_second = 0;
    std::string picture;  // of its pages, as of the last state
    SessionState shown;
    Clock::time_point shown_at;
  };

  void work();
  // Reads the prompts of those that wait and of which less than `max_tokens` has to be read, as long as there are idle
  // sessions.
  void start_waiting(uint32_t max_tokens);
  void end_cancelled();
  size_t best_slot(const Job& job);
  uint32_t n_unread(size_t at, const Job& job) const;
  void wake();
  void read_prompt(size_t at, const std::shared_ptr<Job>& job);
  weir_status on_progress(size_t at, const weir_progress_info& info, Clock::time_point& last);
  bool step();  // false: nothing runs
  void step_singly(const std::vector<size_t>& running);
  void take_event(size_t at, const weir_event& event);
  void fail(size_t at, weir_status status, const char* message);
  void finish(size_t at, Ending ending);
  void fill_ending(size_t at, Ending& ending);
  bool runs(State state) const;  // any session
  SessionState describe(size_t at);
  void refresh(size_t at) noexcept;
  uint64_t dense_bytes(uint32_t n_tokens) const;
  void show(size_t at, bool now);
  void wake_subscribers();
  void make_sessions(const weir_cli::SessionFlags& flags, uint32_t n_sessions);

  weir_model* model_;
  uint32_t queue_limit_;
  weir_cli::SessionFlags flags_;
  weir_plan_info plan_ = WEIR_PLAN_INFO_INIT;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<Slot> slots_;  // their states and conversations under the mutex, the rest is of the thread
  std::vector<Signal*> subscribers_;
  bool is_stopping_ = false, is_working_ = false;
  uint32_t n_prompts_ = 0;  // that are being read, each while the one before pauses; of the thread
  uint64_t n_uses_ = 0, version_ = 0;
  std::thread thread_;
};

}  // namespace weir_server
