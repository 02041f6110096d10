// Life of a session: create, prefill, step, generate. Every public entry takes the busy flag first, so two threads in one session are an error and
// not a race. Pages are reserved before the decoder runs and committed after it, so a failure leaves the conversation as it was.
#include "runtime/session.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "runtime/session_pools.h"

namespace weir {
namespace {

// Whether a pass that computes logits and ended so may have left some of them. Cancels and callbacks end it in the
// layers, before any changes; on a device that is lost they are what they were on the host, and the device has none to
// give.
bool may_spoil_logits(Status status) {
  return !status.ok() && status.code() != WEIR_ERR_CANCELLED && status.code() != WEIR_ERR_DEVICE_LOST;
}

}  // namespace

uint64_t Session::now_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

// Holds the session for one thread and counts what is allocated meanwhile, what callbacks allocate for themselves excepted.
class Session::Entry {
 public:
  explicit Entry(Session& session)
      : session_(session), entered_(!session.busy_.exchange(true)), allocs_(HostMemory::thread_allocs()) {
    if (entered_) session.callback_allocs_ = 0;
  }
  ~Entry() {
    if (!entered_) return;
    session_.late_allocs_.fetch_add(HostMemory::thread_allocs() - allocs_ - session_.callback_allocs_,
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

// Tells who is in on_token, which may ask its session for more than other callbacks may.
class Session::TokenCallback {
 public:
  explicit TokenCallback(Session& session) : session_(session) { session_.token_thread_.store(this_thread()); }
  ~TokenCallback() { session_.token_thread_.store(nullptr); }
  TokenCallback(const TokenCallback&) = delete;
  TokenCallback& operator=(const TokenCallback&) = delete;

 private:
  Session& session_;
};

// A prompt on its way in. Unless finish() was called, what can be taken back is taken back when it ends, however that
// comes about.
class Session::Prompt {
 public:
  Prompt(Session& session, const weir_token* tokens)
      : s_(session),
        tokens_(tokens),
        before_(s_.kv_.n_tokens()),
        open_flags_(s_.kv_.open_page_flags()),
        evicted_(s_.kv_.pages_evicted()),
        prompt_evicted_(s_.kv_.prompt_pages_evicted()),
        started_(now_ns()) {}
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  ~Prompt() {
    if (!finished_) take_back();
    s_.device_is_behind_ = true;
    const uint32_t n_kept = s_.kv_.n_tokens() - before_;
    const Tokenizer& tokenizer = s_.model_->tokenizer();
    if (n_kept != 0) s_.detokenizer_.reset(&tokenizer, false, tokenizer.starts_text_after(tokens_[n_kept - 1]));
    for (uint32_t i = 0; i < n_kept; ++i) s_.sampler_.accept(tokens_[i]);
    s_.n_prompt_.fetch_add(n_kept, std::memory_order_relaxed);
    s_.prefill_ns_.fetch_add(now_ns() - started_, std::memory_order_relaxed);
  }

  void finish() {
    s_.make_room(0, Phase::kPromptEnd);
    s_.policy_->prompt_end(s_.kv_, before_);
    s_.has_logits_ = true;
    finished_ = true;
  }

 private:
  // All of it, unless prompt pages had to leave for it that later tokens need: then whole chunks stay.
  void take_back() {
    KvCache& kv = s_.kv_;
    if (kv.pages_evicted() == evicted_ ||
        (s_.policy_->can_take_back_prompt() && kv.prompt_pages_evicted() == prompt_evicted_)) {
      kv.truncate(before_);
    }
    if (kv.n_tokens() != before_) {
      s_.has_logits_ = false;  // those of a position that is no longer the last
    } else if (before_ % kPageTokens != 0) {
      kv.set_open_page_flags(open_flags_);
    }
    s_.redo_digests();
  }

  Session& s_;
  const weir_token* tokens_;
  uint32_t before_, open_flags_;
  uint64_t evicted_, prompt_evicted_, started_;
  bool finished_ = false;
};

Session::~Session() {
  if (device_ != nullptr) device_->~DeviceSession();
  if (staging_pinned_) (void)module_->unpin(block_);
  if (device_block_ != nullptr) devices_.release(*module_, device_block_, device_bytes_);
  if (policy_ != nullptr) policy_->~Policy();
  if (block_ != nullptr) memory_.deallocate(block_, block_bytes_, block_alignment());
}

Status Session::create(const Model& model, const weir_session_options& options) {
  SessionSetup setup;
  WEIR_TRY(check(model, options, pool_.n_threads(), devices_, policy_storage_, policy_, setup));
  if (setup.module != nullptr) {
    WEIR_TRY(create_on_device(setup));
    return begin(setup);
  }
  SessionPools measured;
  lay_out_session(setup, policy_->needs(), measured, kv_, step_, sampler_);
  fill_plan(setup, policy_->needs(), measured, plan_);
  block_bytes_ = plan_.total_bytes - plan_.session_bytes;
  try {
    block_ = memory_.allocate(block_bytes_, kCacheLine);
  } catch (const std::bad_alloc&) {
    return fail(WEIR_ERR_OUT_OF_MEMORY, "the session's %llu bytes (%llu of them KV pages) could not be allocated%s",
                static_cast<unsigned long long>(plan_.total_bytes), static_cast<unsigned long long>(plan_.kv_bytes),
                HostMemory::thread_refusal().why);
  }
  auto* at = static_cast<std::byte*>(block_);
  SessionPools pools;
  for (auto [pool, size] : {std::pair{&pools.pages, measured.pages.used()},
                            {&pools.digests, measured.digests.used()},
                            {&pools.tables, measured.tables.used()},
                            {&pools.workspace, measured.workspace.used()},
                            {&pools.sampler, measured.sampler.used()}}) {
    *pool = Arena(at, size);
    at += size;
  }
  lay_out_session(setup, policy_->needs(), pools, kv_, step_, sampler_);
  return begin(setup);
}

// What is the same on all devices, once the memory is there.
Status Session::begin(const SessionSetup& setup) {
  const Model& model = *setup.model;
  model_ = &model;
  step_.model = &model;
  step_.backend = setup.backend;
  step_.policy = policy_;
  step_.kv = &kv_;
  step_.scope = setup.rules.scope;
  step_.cx.pool = &pool_;
  trace_.possible = setup.trace;
  detokenizer_.reset(&model.tokenizer(), false, true);
  kv_.reset();
  weir_sampling_options greedy = WEIR_SAMPLING_OPTIONS_INIT;
  WEIR_TRY(check_sampling(greedy));
  sampler_.set(greedy);
  return {};
}

Status Session::reset() {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  kv_.reset();
  events_read_ = kv_.pages_evicted();
  host_is_behind_ = false;
  device_is_behind_ = true;
  sampler_.restart();
  detokenizer_.reset(&model_->tokenizer(), false, true);
  has_logits_ = false;
  cancel_.store(false);
  return {};
}

Status Session::check_token(weir_token token) const {
  const uint32_t n = model_->config().vocab_size;
  if (token < 0 || static_cast<uint32_t>(token) >= n)
    return fail(WEIR_ERR_INVALID_ARG, "token %d is not in 0..%u", token, n - 1);
  return {};
}

// Lets the policy's victims go until every stream has rows for n_tok more tokens and no page has outlived the policy's window.
void Session::make_room(uint32_t n_tok, Phase phase) {
  RoomArgs room = {phase, kv_.n_tokens(), kv_.pages_to_open(n_tok), false, 0};
  for (uint32_t s = 0; s < kv_.shape().n_streams(); ++s) {
    room.stream = s;
    for (;;) {
      const StreamView stream = kv_.stream(s);
      room.crowded = stream.n_pages + room.opens > stream.capacity;
      const uint32_t row = policy_->victim(stream, room);
      // A page that still takes tokens never leaves, whatever a policy says.
      if (row == Policy::kNone || is_filling(stream, row)) break;
      kv_.evict(s, row);
    }
  }
}

Status Session::run_chunk(const weir_token* tokens, uint32_t n_tok, uint32_t n_left) {
  if (device_ != nullptr) return run_device_chunk(tokens, n_tok, n_left);
  make_room(n_tok, Phase::kPrompt);
  WEIR_TRY(kv_.reserve(n_tok, policy_->prompt_flags(), kv_.n_tokens() + n_tok));
  step_.tokens = tokens;
  step_.n_tok = n_tok;
  step_.is_decode = false;
  step_.want_logits = n_left == 0;
  step_.n_left = n_left;
  step_.cancel = &cancel_;
  KvReservation reservation(kv_);
  const ThreadPool::Lease lease(pool_);
  WEIR_TRY(run_decoder(step_));
  reservation.commit();
  return {};
}

uint32_t Session::room_pages() const {
  uint32_t room = UINT32_MAX;
  for (uint32_t s = 0; s < kv_.shape().n_streams(); ++s)
    room = std::min(room, room_of(kv_.stream(s), policy_->n_front_rows()));
  return room;
}

Status Session::run_prefill(const weir_token* tokens, uint32_t n_tokens, weir_progress_fn progress, void* user) {
  for (uint32_t done = 0; done < n_tokens;) {
    if (progress != nullptr) {
      const weir_progress_info info = {sizeof(weir_progress_info), 0, done, n_tokens};
      const Answer answer = call_out([&] { return progress(user, &info); });
      if (!answer.agreed) {
        return fail(WEIR_ERR_CANCELLED, "prefill was cancelled by its progress callback after %u of %u tokens%s", done,
                    n_tokens, answer.why());
      }
    }
    if (take_cancel()) return fail(WEIR_ERR_CANCELLED, "prefill was cancelled after %u of %u tokens", done, n_tokens);
    // However large a chunk the policy wants, pages that stay must leave room for it.
    const uint64_t fits =
        uint64_t{room_pages()} * kPageTokens + (kPageTokens - kv_.n_tokens() % kPageTokens) % kPageTokens;
    if (fits == 0)
      return fail(WEIR_ERR_BUDGET, "prefill stopped after %u of %u tokens: pinned pages leave no room", done, n_tokens);
    const auto n_tok =
        static_cast<uint32_t>(std::min<uint64_t>(fits, policy_->chunk_tokens(kv_, n_tokens - done, step_.b.max_tok)));
    const uint32_t n_left = n_tokens - done - n_tok;
    const Status status = run_chunk(tokens + done, n_tok, n_left);
    if (status.code() == WEIR_ERR_CANCELLED) (void)take_cancel();
    if (n_left == 0 && may_spoil_logits(status)) has_logits_ = false;
    WEIR_TRY(status);
    done += n_tok;
  }
  return {};
}

Status Session::prefill(const weir_token* tokens, uint64_t n_tokens, weir_progress_fn progress, void* user) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  const uint32_t before = kv_.n_tokens();
  const uint64_t room = policy_->needs().context_tokens - before;
  if (n_tokens > room) {
    return fail(WEIR_ERR_CONTEXT_FULL, "a prompt of %llu tokens does not fit: %llu of %u positions are free",
                static_cast<unsigned long long>(n_tokens), static_cast<unsigned long long>(room),
                policy_->needs().context_tokens);
  }
  for (uint64_t i = 0; i < n_tokens; ++i) WEIR_TRY(check_token(tokens[i]));
  WEIR_TRY(host_tables());
  const auto n = static_cast<uint32_t>(n_tokens);
  WEIR_TRY(policy_->admit_prompt(kv_, n));
  if (kv_.pages_to_open(n) > 0 && room_pages() == 0) {
    return fail(
        WEIR_ERR_BUDGET,
        "a prompt of %u tokens does not fit, %u would: pinned pages leave no room; weir_session_unpin lets some leave",
        n, (kPageTokens - before % kPageTokens) % kPageTokens);
  }

  Prompt prompt(*this, tokens);
  WEIR_TRY(run_prefill(tokens, n, progress, user));
  prompt.finish();
  return {};
}

Status Session::open_step(const weir_token* token) {
  make_room(1, Phase::kDecode);
  WEIR_TRY(kv_.reserve(1, 0, kv_.n_tokens() + 1));
  step_.tokens = token;
  step_.n_tok = 1;
  step_.is_decode = true;
  step_.want_logits = true;
  step_.trace = trace_.fn != nullptr ? &trace_ : nullptr;
  step_.cancel = nullptr;  // a step is short, and its observations could not be taken back
  return {};
}

Status Session::run_step(weir_token token) {
  const uint64_t started = now_ns();
  if (device_ != nullptr) {
    WEIR_TRY(run_device_step(token));
    count_step(token, started);
    return {};
  }
  WEIR_TRY(open_step(&token));
  KvReservation reservation(kv_);
  const ThreadPool::Lease lease(pool_);
  const Status status = run_decoder(step_);
  if (may_spoil_logits(status)) has_logits_ = false;
  WEIR_TRY(status);
  reservation.commit();
  count_step(token, started);
  return {};
}

void Session::count_step(weir_token token, uint64_t started) {
  sampler_.accept(token);
  has_logits_ = true;
  n_decode_.fetch_add(1, std::memory_order_relaxed);
  pages_attended_.store(step_.pages_attended, std::memory_order_relaxed);
  decode_ns_.fetch_add(now_ns() - started, std::memory_order_relaxed);
}

Status Session::step(weir_token token) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(check_token(token));
  if (kv_.n_tokens() >= policy_->needs().context_tokens) {
    return fail(WEIR_ERR_CONTEXT_FULL, "all %u positions of the context are taken", policy_->needs().context_tokens);
  }
  if (take_cancel()) return fail(WEIR_ERR_CANCELLED, "the step was cancelled");
  WEIR_TRY(run_step(token));
  detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(token));
  return {};
}

Status Session::logits(const float*& out, uint32_t& n) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  if (!has_logits_) return fail(WEIR_ERR_STATE, "there are no logits before the first prefill or step");
  WEIR_TRY(current_logits());
  out = step_.b.logits;
  n = model_->config().vocab_size;
  return {};
}

Status Session::set_sampling(const weir_sampling_options& options) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  weir_sampling_options checked = options;
  WEIR_TRY(check_sampling(checked));
  sampler_.set(checked);
  return {};
}

Status Session::sample(weir_token& token) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  if (!has_logits_) return fail(WEIR_ERR_STATE, "there are no logits before the first prefill or step");
  return sample_logits(token);
}

Status Session::sample_logits(weir_token& token) {
  if (greedy_from_device_ && sampler_.is_greedy() && staging_.state->next_token >= 0) {
    token = staging_.state->next_token;
    return {};
  }
  const uint32_t n = sampler_.candidates_needed();
  if (logits_on_device_ && n != 0 && n <= kMostTopLogits) return sample_top_logits(n, token);
  WEIR_TRY(current_logits());
  return sampler_.sample(step_.b.logits, token);
}

Status Session::generate(const weir_generate_options& options, weir_generate_result& result) {
  result.stop = WEIR_STOP_NONE;
  result.n_tokens = 0;
  result.last_token = -1;
  Entry entry(*this);
  WEIR_TRY(entry.status());
  if (!has_logits_) return fail(WEIR_ERR_STATE, "there are no logits before the first prefill or step");
  const Status status = run_generate(options, result);
  if (!status.ok()) result.stop = status.code() == WEIR_ERR_CANCELLED ? WEIR_STOP_CANCELLED : WEIR_STOP_ERROR;
  return status;
}

Status Session::draw(weir_token& token) {
  const uint64_t started = now_ns();
  const Status status = sample_logits(token);
  decode_ns_.fetch_add(now_ns() - started, std::memory_order_relaxed);
  return status;
}

Status Session::run_generate(const weir_generate_options& options, weir_generate_result& result) {
  const uint32_t limit = options.max_tokens == 0 ? UINT32_MAX : options.max_tokens;
  const bool ignore_eos = (options.flags & WEIR_GENERATE_IGNORE_EOS) != 0;
  detokenizer_.set_special((options.flags & WEIR_GENERATE_SPECIAL_TEXT) != 0);
  const auto show = [&](weir_token token, std::string_view text) -> Answer {
    if (options.on_token == nullptr) return {};
    const weir_token_event event = {sizeof(weir_token_event), token,       result.n_tokens,
                                    kv_.n_tokens(),           text.data(), text.size()};
    const TokenCallback inside(*this);
    return call_out([&] { return options.on_token(options.user, &event); });
  };
  const char* why = "";
  int32_t stop = WEIR_STOP_LENGTH;
  while (result.n_tokens < limit && stop == WEIR_STOP_LENGTH) {
    if (take_cancel()) {
      stop = WEIR_STOP_CANCELLED;
    } else if (kv_.n_tokens() >= policy_->needs().context_tokens) {
      stop = WEIR_STOP_CONTEXT;
    } else {
      weir_token token = -1;
      WEIR_TRY(draw(token));
      result.last_token = token;
      if (!ignore_eos && model_->tokenizer().is_end_of_generation(token)) {
        stop = WEIR_STOP_EOS;
      } else {
        const Answer answer = show(token, detokenizer_.push(token));
        if (!answer.agreed) stop = WEIR_STOP_CANCELLED;
        why = answer.why();
        WEIR_TRY(run_step(token));
        ++result.n_tokens;
      }
    }
  }
  result.stop = stop;
  if (stop == WEIR_STOP_CANCELLED)
    return fail(WEIR_ERR_CANCELLED, "generation was cancelled after %u tokens%s", result.n_tokens, why);
  // Nothing can complete a character that the answer left open. After STOP_LENGTH the next call can, so its bytes are kept.
  if (stop != WEIR_STOP_LENGTH) {
    const std::string_view rest = detokenizer_.flush();
    if (!rest.empty()) (void)show(-1, rest);
  }
  return {};
}

void Session::get_stats(weir_session_stats& s) const {
  s.n_tokens = kv_.n_tokens_any_thread();
  s.n_prompt = n_prompt_.load(std::memory_order_relaxed);
  s.n_decode = n_decode_.load(std::memory_order_relaxed);
  s.pages_resident = kv_.pages_resident();
  s.pages_resident_max = kv_.pages_resident_max();
  s.pages_evicted = kv_.pages_evicted();
  s.pages_dropped = s.pages_evicted;  // no spilling yet: what leaves is gone
  s.prefill_ns = prefill_ns_.load(std::memory_order_relaxed);
  s.decode_ns = decode_ns_.load(std::memory_order_relaxed);
  s.pages_attended = pages_attended_.load(std::memory_order_relaxed);
}

void Session::get_memory(weir_memory_info& m) const {
  m.plan_bytes = plan_.total_bytes;
  m.device_bytes = device_bytes_;
  m.bytes = sizeof(Session) + memory_.bytes() + device_bytes_;
  m.peak_bytes = sizeof(Session) + memory_.peak_bytes() + device_bytes_;
  m.kv_budget_bytes = plan_.kv_bytes;
  m.kv_bytes = kv_.pages_resident() * plan_.page_bytes;
  m.kv_peak_bytes = kv_.pages_resident_max() * plan_.page_bytes;
  m.n_allocs = 1 + memory_.n_allocs() + (device_bytes_ != 0 ? 1 : 0);
  m.allocs_while_decoding = late_allocs_.load(std::memory_order_relaxed);
}

}  // namespace weir
