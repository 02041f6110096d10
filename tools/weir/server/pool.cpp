// Sessions, their queue and the thread that computes; see pool.h.
#include "server/pool.h"

#include <algorithm>
#include <utility>

#include "server/limits.h"
#include "server/picture.h"

namespace weir_server {
namespace {

// Each takes a part of the thread's stack while those that began later are read.
constexpr uint32_t kMaxPromptsTogether = 8;

// What reading this prompt would keep and read.
std::optional<weir_prompt_report> measured(weir_session* session, const std::vector<weir_token>& prompt) {
  weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
  options.flags = WEIR_PROMPT_MEASURE;
  weir_prompt_report report = WEIR_PROMPT_REPORT_INIT;
  if (weir_session_prompt_tokens(session, prompt.data(), prompt.size(), &options, &report) != WEIR_OK)
    return std::nullopt;
  return report;
}

}  // namespace

using weir_cli::check;
using weir_cli::Error;

Job::Job(Task task, std::shared_ptr<Signal> signal) : task_(std::move(task)), signal_(std::move(signal)) {
  weir_cancel* cancel = nullptr;
  check(weir_cancel_create(&cancel), "cannot prepare an answer");
  cancel_.reset(cancel);
}

Job::Update Job::take() {
  const std::lock_guard lock(mutex_);
  Update update = std::exchange(update_, Update());
  update_.n_read = update.n_read;
  update_.n_to_read = update.n_to_read;
  return update;
}

void Job::cancel() {
  mark_cancelled();
  if (pool_ != nullptr) pool_->wake();
}

void Job::mark_cancelled() {
  is_cancelled_ = true;
  weir_cancel_set(cancel_.get());
}

void Job::end(Ending ending) {
  {
    const std::lock_guard lock(mutex_);
    update_.ending = std::move(ending);
  }
  signal_->set();
}

Pool::Pool(weir_model* model, const weir_cli::SessionFlags& flags, uint32_t n_sessions, uint32_t queue_limit)
    : model_(model), queue_limit_(queue_limit) {
  make_sessions(flags, n_sessions);
  thread_ = std::thread([this] { work(); });
}

Pool::~Pool() { stop(); }

void Pool::make_sessions(const weir_cli::SessionFlags& flags, uint32_t n_sessions) {
  weir_cli::SessionOptions options(flags);
  const weir_plan_info plan = weir_cli::make_plan(model_, options.get());
  std::vector<Slot> slots(n_sessions);
  for (Slot& slot : slots) slot.session = weir_cli::create_session(model_, options.get());
  flags_ = flags;
  plan_ = plan;
  slots_ = std::move(slots);
  for (size_t i = 0; i < slots_.size(); ++i) refresh(i);
}

void Pool::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (const auto& job : waiting_) job->mark_cancelled();
    for (const Slot& slot : slots_) {
      if (slot.job) slot.job->mark_cancelled();
    }
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Pool::Submitted Pool::submit(const std::vector<std::shared_ptr<Job>>& jobs) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return Submitted::kIsStopping;
    if (slots_.empty()) return Submitted::kHasNoSessions;
    size_t n_idle = 0;
    for (const Slot& slot : slots_) n_idle += slot.state == State::kIdle ? 1 : 0;
    // What an idle session takes at once does not wait.
    if (waiting_.size() + jobs.size() > queue_limit_ + n_idle && !(waiting_.empty() && n_idle > 0))
      return Submitted::kQueueIsFull;
    for (const auto& job : jobs) job->pool_ = this;
    waiting_.insert(waiting_.end(), jobs.begin(), jobs.end());
  }
  changed_.notify_all();
  wake_subscribers();
  return Submitted::kYes;
}

void Pool::wake() {
  // With the lock, so that the thread is not between its look at what there is to do and its sleep.
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

size_t Pool::n_waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

weir_cli::SessionFlags Pool::flags() const {
  const std::lock_guard lock(mutex_);
  return flags_;
}

uint32_t Pool::n_sessions() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(slots_.size());
}

weir_plan_info Pool::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

bool Pool::remake(const weir_cli::SessionFlags& flags, uint32_t n_sessions) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return !is_working_ || !waiting_.empty() || runs(State::kDecode) || runs(State::kPrompt); });
  const bool is_idle =
      !is_working_ && waiting_.empty() &&
      std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.state == State::kIdle; });
  if (!is_idle || is_stopping_) return false;
  weir_cli::SessionOptions options(flags);
  (void)weir_cli::make_plan(model_, options.get());  // what is wrong is found before anything is given up
  // Both together may be more than the machine has, so the old ones go first.
  const weir_cli::SessionFlags old_flags = flags_;
  const auto n_old = static_cast<uint32_t>(slots_.size());
  slots_.clear();
  try {
    make_sessions(flags, n_sessions);
  } catch (...) {
    make_sessions(old_flags, n_old);
    throw;
  }
  lock.unlock();
  wake_subscribers();
  return true;
}

std::vector<SessionState> Pool::states() const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionState> states;
  for (const Slot& slot : slots_) states.push_back(slot.shown);
  return states;
}

void Pool::subscribe(Signal* signal) {
  const std::lock_guard lock(mutex_);
  subscribers_.push_back(signal);
}

void Pool::unsubscribe(Signal* signal) {
  const std::lock_guard lock(mutex_);
  std::erase(subscribers_, signal);
}

void Pool::wake_subscribers() {
  const std::lock_guard lock(mutex_);
  for (Signal* signal : subscribers_) signal->set();
}

Pool::Lease::~Lease() {
  if (pool_ == nullptr) return;
  {
    const std::lock_guard lock(pool_->mutex_);
    Slot& slot = pool_->slots_[slot_];
    slot.state = State::kIdle;
    pool_->refresh(slot_);
  }
  pool_->changed_.notify_all();
  pool_->wake_subscribers();
}

weir_session* Pool::Lease::session() const { return pool_->slots_[slot_].session.get(); }

uint32_t Pool::Lease::id() const { return static_cast<uint32_t>(slot_); }

void Pool::Lease::set_conversation(const std::string& name) {
  const std::lock_guard lock(pool_->mutex_);
  Slot& slot = pool_->slots_[slot_];
  slot.conversation = name;
  slot.picture.clear();  // they are another conversation's now
}

std::optional<Pool::Lease> Pool::lease(const std::string& conversation, bool any) {
  const std::lock_guard lock(mutex_);
  std::optional<size_t> best;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (any ? slot.state != State::kIdle : slot.conversation != conversation) continue;
    const bool is_later = best && slot.last_used > slots_[*best].last_used;
    if (!best || is_later != any) best = i;
  }
  if (!best || slots_[*best].state != State::kIdle || is_stopping_) return std::nullopt;
  slots_[*best].state = State::kTaken;
  slots_[*best].last_used = ++n_uses_;
  return std::optional<Lease>(std::in_place, this, *best);
}

bool Pool::holds(const std::string& conversation) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.conversation == conversation; });
}

bool Pool::runs(State state) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.state == state; });
}

void Pool::work() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const bool ends =
        std::any_of(waiting_.begin(), waiting_.end(), [](const auto& job) { return +job->is_cancelled_; });
    const bool starts = !waiting_.empty() && runs(State::kIdle);
    if (!runs(State::kDecode) && !starts && !ends) {
      changed_.wait(lock);
      continue;
    }
    is_working_ = true;
    lock.unlock();
    step();
    if (starts) start_waiting(UINT32_MAX);
    lock.lock();
    is_working_ = false;
    changed_.notify_all();
  }
  // Nobody is left to compute what waits or runs.
  std::deque<std::shared_ptr<Job>> waiting = std::exchange(waiting_, {});
  lock.unlock();
  Ending ending;
  ending.stop = WEIR_STOP_CANCELLED;
  for (const auto& job : waiting) job->end(ending);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].job) finish(i, ending);
  }
  wake_subscribers();
}

// The idle session that goes on with what it holds: the one that has this conversation by its name, or else the
// longest common beginning, if that is half of what it holds or of the prompt. A session whose conversation only begins
// with the same few words keeps it: then the one that was not used for the longest time is taken.
size_t Pool::best_slot(const Job& job) {
  const std::vector<weir_token>& prompt = job.task_.prompt;
  const std::string& name = job.task_.conversation;
  size_t best = slots_.size(), oldest = slots_.size();
  uint32_t most = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != State::kIdle) continue;
    if (!name.empty() && slot.conversation == name) return i;
    if (oldest == slots_.size() || slot.last_used < slots_[oldest].last_used) oldest = i;
    const auto report = measured(slot.session.get(), prompt);
    if (!report || report->n_kept == 0 || report->n_kept < most) continue;
    if (2 * report->n_kept < std::min(report->n_tokens, report->n_kept + report->n_forgotten)) continue;
    if (report->n_kept == most && best < slots_.size() && slot.last_used > slots_[best].last_used) continue;
    best = i;
    most = report->n_kept;
  }
  return best < slots_.size() ? best : oldest;
}

// Tokens that this session would have to read for it.
uint32_t Pool::n_unread(size_t at, const Job& job) const {
  const std::vector<weir_token>& prompt = job.task_.prompt;
  const auto report = measured(slots_[at].session.get(), prompt);
  return report ? report->n_tokens - report->n_kept : static_cast<uint32_t>(prompt.size());
}

// Those that nobody wants any more do not take the place of others in the queue.
void Pool::end_cancelled() {
  std::vector<std::shared_ptr<Job>> cancelled;
  {
    const std::lock_guard lock(mutex_);
    const auto is_wanted = [](const std::shared_ptr<Job>& job) { return !job->is_cancelled_; };
    const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), is_wanted);
    cancelled.assign(first, waiting_.end());
    waiting_.erase(first, waiting_.end());
  }
  if (cancelled.empty()) return;
  Ending ending;
  ending.stop = WEIR_STOP_CANCELLED;
  for (const auto& job : cancelled) job->end(ending);
  wake_subscribers();
}

void Pool::start_waiting(uint32_t max_tokens) {
  if (n_prompts_ == kMaxPromptsTogether) return;
  for (;;) {
    std::shared_ptr<Job> job;
    size_t at = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!runs(State::kIdle) || is_stopping_) return;
      auto next = waiting_.begin();
      for (; next != waiting_.end(); ++next) {
        if ((*next)->is_cancelled_) continue;
        at = best_slot(**next);
        if (max_tokens == UINT32_MAX || n_unread(at, **next) < max_tokens) break;
      }
      if (next == waiting_.end()) return;
      job = *next;
      waiting_.erase(next);
      Slot& slot = slots_[at];
      slot.state = State::kPrompt;
      slot.job = job;
      slot.conversation = job->task_.conversation;
      slot.last_used = ++n_uses_;
      slot.tokens_per_second = 0;
    }
    wake_subscribers();
    ++n_prompts_;
    try {
      read_prompt(at, job);
    } catch (const Error& e) {
      fail(at, e.status(), e.what());
    } catch (const std::exception& e) {
      fail(at, WEIR_ERR_INTERNAL, e.what());
    }
    --n_prompts_;
  }
}

weir_status Pool::on_progress(size_t at, const weir_progress_info& info, Clock::time_point& last) {
  Job& job = *slots_[at].job;
  {
    const std::lock_guard lock(job.mutex_);
    job.update_.n_read = static_cast<uint32_t>(info.done);
    job.update_.n_to_read = static_cast<uint32_t>(info.total);
  }
  // The others go on for as long as the piece took.
  const Clock::time_point end = Clock::now() + (Clock::now() - last);
  // And a shorter prompt does not wait for this one, which pauses meanwhile; a longer one waits, or this would.
  start_waiting(static_cast<uint32_t>(info.total - info.done));
  do {
    if (job.is_cancelled_) return WEIR_ERR_CANCELLED;
    if (!step()) break;
  } while (Clock::now() < end);
  last = Clock::now();
  return WEIR_OK;
}

void Pool::read_prompt(size_t at, const std::shared_ptr<Job>& job) {
  Slot& slot = slots_[at];
  weir_session* const session = slot.session.get();
  const Task& task = job->task_;
  show(at, true);
  check(weir_session_set_cancel(session, job->cancel_.get()), "cannot prepare the session");
  const weir_sampling_options sampling = task.sampling.get();
  check(weir_session_set_sampling(session, &sampling), "cannot set the sampling");
  check(weir_session_set_constraint(session, task.constraint.get(), 0), "cannot constrain the answer");
  struct Progress {
    Pool* pool;
    size_t at;
    Clock::time_point last;
  } progress = {this, at, Clock::now()};
  weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
  options.progress = [](void* user, const weir_progress_info* info) -> weir_status {
    auto& p = *static_cast<Progress*>(user);
    return p.pool->on_progress(p.at, *info, p.last);
  };
  options.progress_user = &progress;
  // An answer again, or another last turn, goes on with the pages that a policy has left. Another conversation does
  // not: where the beginning that both have is not whole any more, it is read again.
  const auto expected = measured(session, task.prompt);
  if (expected && expected->n_forgotten > expected->n_kept) options.flags = WEIR_PROMPT_EXACT;
  {
    // Pages of what is read now are new, whatever was in their place.
    const std::lock_guard lock(mutex_);
    const bool keeps = expected && options.flags != WEIR_PROMPT_EXACT;
    slot.picture.resize(std::min<size_t>(slot.picture.size(), keeps ? expected->n_kept / plan_.page_tokens : 0));
  }
  job->dropped_before_ = weir_cli::session_stats(session).pages_dropped;
  weir_prompt_report report = WEIR_PROMPT_REPORT_INIT;
  check(weir_session_prompt_tokens(session, task.prompt.data(), task.prompt.size(), &options, &report),
        "cannot read the prompt");
  std::vector<weir_text> stops;
  const weir_generate_options generate = weir_cli::generate_options(task.answer, stops);
  check(weir_session_begin(session, &generate), "cannot begin the answer");
  job->begun_at_ = Clock::now();
  job->recalled_before_ = weir_cli::session_stats(session).pages_recalled;
  {
    const std::lock_guard lock(job->mutex_);
    job->update_.beginning = Beginning{static_cast<uint32_t>(at), report.n_tokens, report.n_kept};
    job->update_.n_read = job->update_.n_to_read;
  }
  job->signal_->set();
  {
    const std::lock_guard lock(mutex_);
    slot.state = State::kDecode;
  }
  show(at, true);
}

bool Pool::step() {
  end_cancelled();
  std::vector<size_t> running, unwanted;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].state == State::kDecode) (slots_[i].job->is_cancelled_ ? unwanted : running).push_back(i);
    }
  }
  for (const size_t at : unwanted) {
    Ending ending;
    ending.stop = WEIR_STOP_CANCELLED;
    finish(at, std::move(ending));
  }
  if (running.empty()) return false;
  std::vector<weir_session*> sessions;
  for (const size_t at : running) {
    sessions.push_back(slots_[at].session.get());
    if (slots_[at].job->finishes_thinking_.exchange(false)) weir_session_finish_thinking(sessions.back());
  }
  const weir_event none = WEIR_EVENT_INIT;
  std::vector<weir_event> events(running.size(), none);
  const weir_status status =
      weir_next_many(sessions.data(), events.data(), static_cast<uint32_t>(running.size()), nullptr);
  if (status == WEIR_OK) {
    for (size_t i = 0; i < running.size(); ++i) take_event(running[i], events[i]);
  } else {
    step_singly(running);
  }
  return true;
}

// One of the sessions has failed and no event was lost: each goes on alone, so that only that one ends.
void Pool::step_singly(const std::vector<size_t>& running) {
  for (const size_t at : running) {
    weir_event event = WEIR_EVENT_INIT;
    const weir_status status = weir_session_next(slots_[at].session.get(), &event);
    if (status == WEIR_OK)
      take_event(at, event);
    else
      fail(at, status, Error(status, "cannot generate").what());
  }
}

void Pool::take_event(size_t at, const weir_event& event) try {
  Slot& slot = slots_[at];
  Job& job = *slot.job;
  Piece piece = {std::string(event.text, event.text_bytes), event.segment, -1, event.logprob, {}};
  if (event.kind == WEIR_EVENT_TOKEN) {
    piece.token = event.token;
    ++job.n_tokens_;
    if (event.segment == WEIR_SEGMENT_THOUGHT) ++job.n_thought_;
    for (uint32_t i = 0; i < event.n_top; ++i) piece.top.push_back({event.top[i].token, event.top[i].logprob});
    const std::chrono::duration<double> elapsed = Clock::now() - job.begun_at_;
    slot.tokens_per_second = job.n_tokens_ / std::max(elapsed.count(), 1e-9);
  }
  if (!piece.text.empty() || piece.token >= 0) {
    const std::lock_guard lock(job.mutex_);
    job.update_.pieces.push_back(std::move(piece));
  }
  job.signal_->set();
  if (event.kind == WEIR_EVENT_END) {
    Ending ending;
    ending.stop = event.stop;
    if (event.stop_index >= 0) ending.stop_string = job.task_.answer.stops[static_cast<size_t>(event.stop_index)];
    finish(at, std::move(ending));
  } else {
    show(at, false);
  }
} catch (const std::exception& e) {
  fail(at, WEIR_ERR_INTERNAL, e.what());  // nothing throws any more once the answer has ended
}

void Pool::fail(size_t at, weir_status status, const char* message) {
  Ending ending;
  ending.stop = status == WEIR_ERR_CANCELLED ? WEIR_STOP_CANCELLED : WEIR_STOP_ERROR;
  ending.status = status;
  ending.error = message;
  finish(at, std::move(ending));
}

void Pool::fill_ending(size_t at, Ending& ending) {
  const Slot& slot = slots_[at];
  Job& job = *slot.job;
  ending.n_tokens = job.n_tokens_;
  ending.n_thought = job.n_thought_;
  ending.tokens_per_second = slot.tokens_per_second;
  const weir_memory_info memory = weir_cli::session_memory(slot.session.get());
  const weir_session_stats stats = weir_cli::session_stats(slot.session.get());
  ending.kv_bytes = memory.kv_bytes;
  ending.kv_budget_bytes = memory.kv_budget_bytes;
  ending.dense_bytes = dense_bytes(stats.n_tokens);
  ending.recalled_pages = stats.pages_recalled - job.recalled_before_;
  // Where the session began anew they are counted anew.
  ending.dropped_pages = stats.pages_dropped - (job.dropped_before_ <= stats.pages_dropped ? job.dropped_before_ : 0);
  weir_chat_message message = WEIR_CHAT_MESSAGE_INIT;
  uint32_t is_malformed = 0;
  if (ending.stop == WEIR_STOP_ERROR || ending.stop == WEIR_STOP_CANCELLED || job.n_tokens_ == 0) return;
  if (weir_session_answer(slot.session.get(), &message, sizeof(message), &is_malformed) != WEIR_OK) return;
  if (message.tool_calls_json != nullptr) ending.tool_calls = message.tool_calls_json;
  ending.has_malformed_call = is_malformed != 0;
}

void Pool::finish(size_t at, Ending ending) {
  Slot& slot = slots_[at];
  try {
    fill_ending(at, ending);
  } catch (const std::exception&) {
    // The answer ends without its figures.
  }
  (void)weir_session_set_cancel(slot.session.get(), nullptr);
  if (slot.job->task_.constraint) (void)weir_session_set_constraint(slot.session.get(), nullptr, 0);
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    slot.state = State::kIdle;
    job = std::move(slot.job);
    slot.job = nullptr;
  }
  show(at, true);
  job->end(std::move(ending));
}

SessionState Pool::describe(size_t at) {
  Slot& slot = slots_[at];
  weir_session* const session = slot.session.get();
  const weir_memory_info memory = weir_cli::session_memory(session);
  const weir_session_stats stats = weir_cli::session_stats(session);
  SessionState s;
  s.id = static_cast<uint32_t>(at);
  s.state = slot.state == State::kPrompt ? "prompt" : slot.state == State::kDecode ? "decode" : "idle";
  s.conversation = slot.conversation;
  s.n_tokens = stats.n_tokens;
  s.kv_bytes = memory.kv_bytes;
  s.kv_budget_bytes = memory.kv_budget_bytes;
  s.dense_bytes = dense_bytes(stats.n_tokens);
  s.recalled_pages = stats.pages_recalled;
  s.dropped_pages = stats.pages_dropped;
  s.store_bytes = stats.spill_stored_bytes;
  s.store_raw_bytes = weir_cli::stored_pages(plan_, stats) * plan_.page_bytes;
  s.tokens_per_second = slot.tokens_per_second;
  s.pages = slot.picture = picture_of(session, stats.n_tokens / plan_.page_tokens + 2, slot.picture);
  s.version = ++version_;
  return s;
}

uint64_t Pool::dense_bytes(uint32_t n_tokens) const {
  const uint64_t n_pages = (uint64_t{n_tokens} + plan_.page_tokens - 1) / plan_.page_tokens;
  // A layer with a sliding window holds no more than that.
  const uint64_t n_window_pages = std::min<uint64_t>(n_pages, plan_.window_pages_per_stream);
  const uint64_t n_full = plan_.n_streams - plan_.n_window_streams;
  return (n_full * n_pages + plan_.n_window_streams * n_window_pages) * plan_.page_bytes;
}

// Where the session cannot be looked at, what was shown stays.
void Pool::refresh(size_t at) noexcept {
  try {
    slots_[at].shown = describe(at);
  } catch (const std::exception&) {
    slots_[at].shown.version = ++version_;
  }
}

void Pool::show(size_t at, bool now) {
  Slot& slot = slots_[at];
  if (!now && Clock::now() - slot.shown_at < std::chrono::milliseconds(kStateMs)) return;
  slot.shown_at = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    refresh(at);
  }
  wake_subscribers();
}

}  // namespace weir_server
