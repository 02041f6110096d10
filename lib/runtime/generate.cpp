// Decode steps, one by one, as a whole answer and as one that is pulled.
#include <algorithm>

#include "core/call.h"
#include "runtime/session_entry.h"

namespace weir {

void Session::Stepping::count(weir_token token) {
  const uint32_t n = s_.kv_.n_tokens();
  s_.pulled_until_ = s_.has_logits_ && token == s_.drawn_ && s_.drawn_for_ + 1 == n ? n : UINT32_MAX;
  s_.record_.put(n - 1, &token, 1);
  s_.sampler_.accept(token);
  s_.has_logits_ = true;
  s_.counters_.n_decode.add(1);
  s_.counters_.pages_attended.set(s_.step_.pages_attended);
  s_.counters_.decode_ns.add(now_ns() - started_);
}

Status Session::step(weir_token token) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(check_token(*model_, token));
  if (kv_.n_tokens() >= policy_->needs().context_tokens) {
    return fail(WEIR_ERR_CONTEXT_FULL, "all %u positions of the context are taken", policy_->needs().context_tokens);
  }
  if (!was_drawn(token) && cancel_.take()) return fail(WEIR_ERR_CANCELLED, "the step was cancelled");
  Stepping stepping(*this);
  WEIR_TRY(machine_->step(token));
  stepping.count(token);
  detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(token));
  return {};
}

Status Session::Answers::draw(Session& s, weir_token& token, int32_t& stop) {
  const Answering::State& answer = s.answering_.state();
  const uint32_t n_tokens = s.kv_.n_tokens();
  token = -1;
  stop = WEIR_STOP_NONE;
  if (answer.is_full()) return stop = WEIR_STOP_LENGTH, Status();
  if (s.cancel_.take()) return stop = WEIR_STOP_CANCELLED, Status();
  if (n_tokens >= s.policy_->needs().context_tokens) return stop = WEIR_STOP_CONTEXT, Status();
  if (s.answering_.force(token)) {
    s.drawn_ = token;
    s.drawn_for_ = n_tokens;
    s.mask_.free_next(n_tokens);
    return {};
  }
  const uint64_t started = now_ns();
  const Tokenizer& tokenizer = s.model_->tokenizer();
  // A thought is free but for its end: the text of a constraint has still to come.
  const bool has_more =
      answer.n_tokens < answer.min_tokens || (s.mask_.has_constraint() && s.answering_.parts().in_thought());
  s.sampler_.forbid(has_more ? tokenizer.ends() : std::span<const weir_token>());
  Status status = s.sample_logits(true, token);
  s.sampler_.forbid({});
  if (status.ok() && token >= 0 && answer.n_top != 0) {
    const uint32_t n_top = std::min(answer.n_top, s.model_->config().vocab_size);
    status = s.machine_->find_probs(token, n_top, s.answering_.probs());
  }
  s.counters_.decode_ns.add(now_ns() - started);
  WEIR_TRY(status);
  stop = token < 0 ? int32_t{WEIR_STOP_CONSTRAINT} : s.answering_.stop_at(token);
  return {};
}

Status Session::Answers::open(Session& s, const weir_generate_options& options) {
  WEIR_TRY(Answering::check(options));
  WEIR_TRY(s.check_logits());
  WEIR_TRY(s.answering_.begin(options));
  s.mask_.begin(s.kv_.n_tokens());
  return {};
}

// An answer that is shown to a function of the application, token by token.
class Session::ShownAnswer {
 public:
  ShownAnswer(Session& session, const weir_generate_options& options) : s_(session), options_(options) {}

  // Draws a token, shows it and appends it, or says why the answer ends.
  Status add_token(int32_t& stop, weir_generate_result& result) {
    weir_token token = -1;
    WEIR_TRY(Answers::draw(s_, token, stop));
    if (token >= 0) result.last_token = token;
    if (stop != WEIR_STOP_NONE) return {};
    const Answering::Text text = s_.answering_.push(token);
    show(token, text.piece.text);
    Stepping stepping(s_);
    const Status status = s_.machine_->step(token);  // also if the callback refused: it was shown
    if (!status.ok()) {
      // The token is not part of the conversation: it does not count and leaves no bytes for the text of the next one.
      s_.answering_.take_back(text);
      return status;
    }
    stepping.count(token);
    s_.answering_.add_shown(token, text);
    if (text.piece.found >= 0) {
      stop = WEIR_STOP_STRING;
      result.stop_index = text.piece.found;
    }
    if (!agreement_.agreed) stop = WEIR_STOP_CANCELLED;
    return {};
  }

  // Ends it, after the last token or the error that `status` is.
  Status finish(Status status, int32_t stop, weir_generate_result& result) {
    if (!status.ok()) stop = status.code() == WEIR_ERR_CANCELLED ? WEIR_STOP_CANCELLED : WEIR_STOP_ERROR;
    const std::string_view rest = s_.answering_.finish(stop);
    if (!rest.empty() && agreement_.agreed) show(-1, rest);
    if (!agreement_.agreed) stop = WEIR_STOP_CANCELLED;
    if (stop != WEIR_STOP_STRING) result.stop_index = -1;
    result.stop = stop;
    result.n_tokens = s_.answering_.state().n_tokens;
    WEIR_TRY(status);
    if (stop != WEIR_STOP_CANCELLED) return {};
    return fail(WEIR_ERR_CANCELLED, "generation was cancelled after %u tokens%s", result.n_tokens, agreement_.why());
  }

 private:
  // Shows the application a token, or with -1 the rest of the text.
  void show(weir_token token, std::string_view text) {
    agreement_ = {};
    if (options_.on_token == nullptr) return;
    const uint32_t index = s_.answering_.state().n_tokens;
    weir_token_event event = {.struct_size = sizeof(weir_token_event),
                              .token = token,
                              .index = index,
                              .n_tokens = s_.kv_.n_tokens(),
                              .text = text.data(),
                              .text_bytes = text.size(),
                              .logprob = NAN,
                              .n_top = 0,
                              .top = nullptr};
    if (token >= 0) s_.answering_.probs().tell(event);
    // The thread may call more functions of its session than in other callbacks.
    s_.token_thread_.store(this_thread());
    agreement_ = s_.call_outs_.call([&] { return options_.on_token(options_.user, &event); });
    s_.token_thread_.store(nullptr);
  }

  Session& s_;
  const weir_generate_options& options_;
  Answer agreement_;  // the application's, to the latest event
};

Status Session::generate(const weir_generate_options& options, weir_generate_result& result) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(Answers::open(*this, options));
  ShownAnswer answer(*this, options);
  Status status;
  int32_t stop = WEIR_STOP_NONE;
  while (stop == WEIR_STOP_NONE && status.ok()) status = answer.add_token(stop, result);
  return answer.finish(status, stop, result);
}

Status Session::begin_answer(const weir_generate_options& options) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(Answers::open(*this, options));
  answering_.begin_events();
  return {};
}

Status Session::next_event(weir_event& event) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(Answers::check(*this));
  event.n_tokens = kv_.n_tokens();
  event.logprob = NAN;
  if (answering_.give_text(event)) return {};
  if (answering_.state().stop == WEIR_STOP_NONE) {
    weir_token token = -1;
    int32_t stop = WEIR_STOP_NONE;
    WEIR_TRY(Answers::draw(*this, token, stop));
    if (stop == WEIR_STOP_NONE) {
      Stepping stepping(*this);
      WEIR_TRY(machine_->step(token));
      stepping.count(token);
      answering_.give_token(token, event);
      return {};
    }
    answering_.end_by(token, stop);
  }
  answering_.give_end(event);
  return {};
}

Status Session::answer(weir_chat_message& message, bool& is_malformed) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  return answering_.message(message, is_malformed);
}

Status Session::set_token_mask(weir_mask_fn fn, void* user) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  mask_.tokens().set_function(fn, user, model_->config().vocab_size);
  return {};
}

Status Session::set_constraint(constraint::SharedConstraint* constraint) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  mask_.tokens().set_constraint(constraint, model_->config().vocab_size);
  if (!answering_.state().runs()) mask_.begin(kv_.n_tokens());
  return {};
}

}  // namespace weir
