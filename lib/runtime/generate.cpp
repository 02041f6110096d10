// Decode steps, one by one and as a whole answer. A step's pages are reserved before the decoder runs and committed
// after it, so a failure leaves the conversation as it was.
#include "policy/room.h"
#include "runtime/session_entry.h"

namespace weir {

// Records which thread is in on_token: it may call more functions of its session than other callbacks.
class Session::TokenCallback {
 public:
  explicit TokenCallback(Session& session) : session_(session) { session_.token_thread_.store(this_thread()); }
  ~TokenCallback() { session_.token_thread_.store(nullptr); }
  TokenCallback(const TokenCallback&) = delete;
  TokenCallback& operator=(const TokenCallback&) = delete;

 private:
  Session& session_;
};

Status Session::open_step(const weir_token* token) {
  WEIR_TRY(prepare_copies(1));
  make_room(*policy_, kv_, 1, Phase::kDecode);
  WEIR_TRY(kv_.reserve(1, 0, kv_.n_tokens() + 1));
  step_.tokens = token;
  step_.n_tok = 1;
  step_.is_decode = true;
  step_.want_logits = true;
  step_.trace = trace_.fn != nullptr ? &trace_ : nullptr;
  step_.cancel = nullptr;  // a step is short, and what the policy observed could not be taken back
  return {};
}

Status Session::run_step(weir_token token) {
  const uint64_t started = now_ns();
  is_used_ = true;
  if (device_ != nullptr) {
    WEIR_TRY(run_device_step(token));
    count_step(token, started);
    return {};
  }
  WEIR_TRY(open_step(&token));
  KvReservation reservation(kv_);
  const ThreadPool::Lease lease(pool_);
  Step* const step = &step_;
  WEIR_TRY(run_layers({&step, 1}));
  const Status status = run_logits({&step, 1});
  if (!status.ok()) has_logits_ = false;  // some of them may be new
  WEIR_TRY(status);
  reservation.commit();
  seal(kv_.n_tokens() - 1);
  count_step(token, started);
  return {};
}

void Session::count_step(weir_token token, uint64_t started) {
  pulled_until_ = has_logits_ && token == drawn_ && drawn_for_ + 1 == kv_.n_tokens() ? kv_.n_tokens() : UINT32_MAX;
  record_.put(kv_.n_tokens() - 1, &token, 1);
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
  if (!was_drawn(token) && take_cancel()) return fail(WEIR_ERR_CANCELLED, "the step was cancelled");
  WEIR_TRY(run_step(token));
  detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(token));
  return {};
}

Status Session::draw(weir_token& token) {
  const uint64_t started = now_ns();
  const Status status = sample_logits(token);
  decode_ns_.fetch_add(now_ns() - started, std::memory_order_relaxed);
  return status;
}

// Shows the application a token, or with -1 the rest of the text.
Answer Session::show(const weir_generate_options& options, const weir_generate_result& result, weir_token token,
                     std::string_view text) {
  if (options.on_token == nullptr) return {};
  const weir_token_event event = {sizeof(weir_token_event), token,       result.n_tokens,
                                  kv_.n_tokens(),           text.data(), text.size()};
  const TokenCallback inside(*this);
  return call_out([&] { return options.on_token(options.user, &event); });
}

// A token that was shown is appended even if the callback refused. If that fails, it is not part of the conversation:
// it does not count and leaves no bytes for the text of the next token.
Status Session::show_and_append(const weir_generate_options& options, weir_generate_result& result, weir_token token,
                                Answer& answer) {
  const Detokenizer::Held before = detokenizer_.held();
  answer = show(options, result, token, detokenizer_.push(token));
  const Status status = run_step(token);
  if (status.ok()) {
    ++result.n_tokens;
  } else {
    detokenizer_.restore(before);
  }
  return status;
}

// Why the answer ends before the next token is drawn; WEIR_STOP_NONE: it does not.
int32_t Session::stop_before_token(const weir_generate_options& options, const weir_generate_result& result) {
  if (options.max_tokens != 0 && result.n_tokens >= options.max_tokens) return WEIR_STOP_LENGTH;
  if (take_cancel()) return WEIR_STOP_CANCELLED;
  return kv_.n_tokens() >= policy_->needs().context_tokens ? WEIR_STOP_CONTEXT : WEIR_STOP_NONE;
}

Status Session::generate(const weir_generate_options& options, weir_generate_result& result) {
  result.stop = WEIR_STOP_NONE;
  result.n_tokens = 0;
  result.last_token = -1;
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(check_logits());
  const bool ignore_eos = (options.flags & WEIR_GENERATE_IGNORE_EOS) != 0;
  detokenizer_.set_special((options.flags & WEIR_GENERATE_SPECIAL_TEXT) != 0);
  Answer answer;  // the application's, to the latest token
  const auto failed = [&](Status status) {
    result.stop = status.code() == WEIR_ERR_CANCELLED ? WEIR_STOP_CANCELLED : WEIR_STOP_ERROR;
    return status;
  };
  int32_t stop = WEIR_STOP_NONE;
  while (stop == WEIR_STOP_NONE && (stop = stop_before_token(options, result)) == WEIR_STOP_NONE) {
    weir_token token = -1;
    if (const Status status = draw(token); !status.ok()) return failed(status);
    result.last_token = token;
    if (!ignore_eos && model_->tokenizer().is_end_of_generation(token)) {
      stop = WEIR_STOP_EOS;
      break;
    }
    if (const Status status = show_and_append(options, result, token, answer); !status.ok()) return failed(status);
    if (!answer.agreed) stop = WEIR_STOP_CANCELLED;
  }
  // At the end of an answer and of the context nothing can complete a character that was left open. After the other
  // stops the next call can, so its bytes are kept.
  if (stop == WEIR_STOP_EOS || stop == WEIR_STOP_CONTEXT) {
    const std::string_view rest = detokenizer_.flush();
    if (!rest.empty()) answer = show(options, result, -1, rest);
    if (!answer.agreed) stop = WEIR_STOP_CANCELLED;
  }
  result.stop = stop;
  if (stop != WEIR_STOP_CANCELLED) return {};
  return fail(WEIR_ERR_CANCELLED, "generation was cancelled after %u tokens%s", result.n_tokens, answer.why());
}

}  // namespace weir
