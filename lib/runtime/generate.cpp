// Decode steps, one by one, as a whole answer and as one that is pulled.
#include <algorithm>

#include "core/call.h"
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
  const uint64_t started = begin_step();
  WEIR_TRY(machine_->step(token));
  count_step(token, started);
  detokenizer_.reset(&model_->tokenizer(), false, model_->tokenizer().starts_text_after(token));
  return {};
}

Status Session::draw(weir_token& token) {
  const uint64_t started = now_ns();
  // A thought is free but for its end: the text of a constraint has still to come.
  const bool has_more = answer_.n_tokens < answer_.min_tokens || (mask_.has_constraint() && parts_.in_thought());
  sampler_.forbid(has_more ? model_->tokenizer().ends() : std::span<const weir_token>());
  Status status = sample_logits(true, token);
  sampler_.forbid({});
  if (status.ok() && token >= 0 && answer_.n_top != 0)
    status = machine_->find_probs(token, std::min(answer_.n_top, model_->config().vocab_size), probs_);
  decode_ns_.fetch_add(now_ns() - started, std::memory_order_relaxed);
  return status;
}

// Shows the application a token, or with -1 the rest of the text.
Answer Session::show(const weir_generate_options& options, weir_token token, std::string_view text) {
  if (options.on_token == nullptr) return {};
  weir_token_event event = {
      sizeof(weir_token_event), token, answer_.n_tokens, kv_.n_tokens(), text.data(), text.size(), NAN, 0, nullptr};
  if (token >= 0) probs_.tell(event);
  const TokenCallback inside(*this);
  return call_out([&] { return options.on_token(options.user, &event); });
}

Session::TokenText Session::push_text(weir_token token) {
  const std::string_view text = detokenizer_.push(token);
  return {text, has_stops_ ? stops_.push(text) : StopStrings::Piece{text, -1}};
}

// A token that was appended, with its whole text. The tags need the text of a token that is not shown, too.
void Session::push_part(weir_token token, std::string_view text) {
  const bool special = (answer_.flags & WEIR_GENERATE_SPECIAL_TEXT) != 0;
  parts_.push(token, text, hidden_text(model_->tokenizer(), token, special, text));
}

// The next piece of the answer's text. The text of marks is shown with WEIR_GENERATE_SPECIAL_TEXT alone, but calls are
// shown as the model wrote them.
bool Session::take_part(AnswerParts::Piece& piece) {
  if (!parts_.take(piece)) return false;
  const bool is_mark = piece.segment == WEIR_SEGMENT_MARK && (answer_.flags & WEIR_GENERATE_SPECIAL_TEXT) == 0;
  if (is_mark || (!piece.is_shown && piece.segment != WEIR_SEGMENT_TOOL_CALL)) piece.text = std::string_view("", 0);
  return true;
}

// The last text of an answer. At its end and at that of the context nothing can complete a character that was left
// open. After the other stops the next call can, so its bytes are kept.
std::string_view Session::last_text(int32_t stop) {
  const bool is_over = stop == WEIR_STOP_EOS || stop == WEIR_STOP_CONTEXT || stop == WEIR_STOP_TOOL_CALL;
  const std::string_view rest = is_over ? detokenizer_.flush() : std::string_view();
  parts_.finish(rest);
  return has_stops_ ? stops_.finish(rest) : rest;
}

// Why the answer ends before the next token is drawn; WEIR_STOP_NONE: it does not.
int32_t Session::stop_before_token() {
  if (answer_.max_tokens != 0 && answer_.n_tokens >= answer_.max_tokens) return WEIR_STOP_LENGTH;
  if (take_cancel()) return WEIR_STOP_CANCELLED;
  return kv_.n_tokens() >= policy_->needs().context_tokens ? WEIR_STOP_CONTEXT : WEIR_STOP_NONE;
}

// Draws a token for the answer, or says why it ends: `token` is then what ended it, or -1.
Status Session::draw_for_answer(weir_token& token, int32_t& stop) {
  token = -1;
  stop = stop_before_token();
  if (stop != WEIR_STOP_NONE) return {};
  if (force(token)) {
    free_next_token();
    return {};
  }
  WEIR_TRY(draw(token));
  if (token < 0) return stop = WEIR_STOP_CONSTRAINT, Status();
  const Tokenizer& tokenizer = model_->tokenizer();
  const bool ignore_eos = (answer_.flags & WEIR_GENERATE_IGNORE_EOS) != 0;
  const bool ends_calls = (answer_.flags & WEIR_GENERATE_STOP_AT_CALL) != 0;
  if (!ignore_eos && tokenizer.is_end_of_generation(token)) {
    stop = ends_calls && parts_.has_call() ? WEIR_STOP_TOOL_CALL : WEIR_STOP_EOS;
  } else if (ends_calls && parts_.ends_calls(token, tokenizer.decode(token, true, false))) {
    stop = WEIR_STOP_TOOL_CALL;
  }
  return {};
}

Status Session::open_answer(const weir_generate_options& options) {
  std::string_view stops[StopStrings::kMax];
  if (options.n_stop > StopStrings::kMax) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: n_stop is %u; there may be %u stop strings",
                options.n_stop, StopStrings::kMax);
  }
  for (uint32_t i = 0; i < options.n_stop; ++i) {
    if (options.stop == nullptr || options.stop[i].text == nullptr)
      return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: stop[%u] is NULL", i);
    stops[i] = {options.stop[i].text, options.stop[i].bytes};
  }
  const std::span<const std::string_view> all(stops, options.n_stop);
  WEIR_TRY(StopStrings::check(all));
  if (options.n_top > LogProbs::kMax) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: n_top is %u; events tell at most %u tokens",
                options.n_top, LogProbs::kMax);
  }
  WEIR_TRY(check_logits());
  WEIR_TRY(set_thinking(options));
  has_stops_ = !all.empty();
  stops_.begin(all);
  detokenizer_.set_special((options.flags & WEIR_GENERATE_SPECIAL_TEXT) != 0);
  const AnswerFormat& format = model_->answer_format();
  if (answer_.has_begun && answer_.end == kv_.n_tokens()) {
    parts_.begin(format, AnswerParts::State(parts_.state()));
  } else {
    parts_.begin_behind(format, model_->tokenizer(), record_.view(kv_.n_tokens()));
  }
  const uint32_t n_forced = answer_.n_forced;
  mask_.restart();
  answer_from_ = rules_from_ = kv_.n_tokens();
  answer_ = {};
  answer_.has_begun = true;
  answer_.first = answer_.end = kv_.n_tokens();
  answer_.start = parts_.state();
  answer_.thinking_budget = options.thinking_budget;
  answer_.n_forced = n_forced;
  finish_thinking_.store(false);
  answer_.flags = options.flags;
  answer_.max_tokens = options.max_tokens;
  answer_.min_tokens = options.min_tokens;
  answer_.n_top = options.n_top;
  probs_ = {};
  return {};
}

Status Session::generate(const weir_generate_options& options, weir_generate_result& result) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(open_answer(options));
  Answer agreement;  // the application's, to the latest event
  int32_t stop = WEIR_STOP_NONE;
  Status status;
  while (stop == WEIR_STOP_NONE) {
    weir_token token = -1;
    status = draw_for_answer(token, stop);
    if (!status.ok()) break;
    if (token >= 0) result.last_token = token;
    if (stop != WEIR_STOP_NONE) break;
    const Detokenizer::Held before = detokenizer_.held();
    stops_.mark();
    const auto [text, piece] = push_text(token);
    agreement = show(options, token, piece.text);
    const uint64_t started = begin_step();
    status = machine_->step(token);  // also if the callback refused: it was shown
    if (!status.ok()) {
      // The token is not part of the conversation: it does not count and leaves no bytes for the text of the next one.
      detokenizer_.restore(before);
      stops_.take_back(piece.text.size());
      break;
    }
    count_step(token, started);
    count_token();
    push_part(token, text);
    parts_.leave_out();
    if (piece.found >= 0) {
      stop = WEIR_STOP_STRING;
      result.stop_index = piece.found;
    }
    if (!agreement.agreed) stop = WEIR_STOP_CANCELLED;
  }
  if (!status.ok()) stop = status.code() == WEIR_ERR_CANCELLED ? WEIR_STOP_CANCELLED : WEIR_STOP_ERROR;
  const std::string_view rest = last_text(stop);
  if (!rest.empty() && agreement.agreed) agreement = show(options, -1, rest);
  if (!agreement.agreed) stop = WEIR_STOP_CANCELLED;
  if (stop != WEIR_STOP_STRING) result.stop_index = -1;
  result.stop = stop;
  result.n_tokens = answer_.n_tokens;
  WEIR_TRY(status);
  if (stop != WEIR_STOP_CANCELLED) return {};
  return fail(WEIR_ERR_CANCELLED, "generation was cancelled after %u tokens%s", result.n_tokens, agreement.why());
}

Status Session::begin_answer(const weir_generate_options& options) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(open_answer(options));
  answer_.state = AnswerState::kRuns;
  return {};
}

// Whether the conversation is where the answer left it.
Status Session::check_answer() const {
  if (answer_.state == AnswerState::kNone)
    return fail(WEIR_ERR_STATE, "no answer runs: weir_session_begin begins one, and its end ends it");
  if (answer_.end == kv_.n_tokens()) return check_logits();
  return fail(WEIR_ERR_STATE, "the conversation has %u tokens and was at %u when the answer's last event was given",
              kv_.n_tokens(), answer_.end);
}

// An event of text without a token, if there is such text.
bool Session::give_text(weir_event& event) {
  AnswerParts::Piece piece;
  do {
    if (!take_part(piece)) return false;
  } while (piece.text.empty());
  event.kind = WEIR_EVENT_TEXT;
  event.index = answer_.n_tokens;
  event.segment = piece.segment;
  event.text = piece.text.data();
  event.text_bytes = piece.text.size();
  return true;
}

// The event of the end, or first those with the text that is left.
void Session::end_answer(weir_event& event) {
  if (answer_.state == AnswerState::kRuns) {
    parts_.allow(last_text(answer_.stop).size());
    answer_.state = AnswerState::kEnds;
  }
  if (give_text(event)) return;
  event.text = "";
  event.index = answer_.n_tokens;
  event.segment = parts_.segment();
  event.kind = WEIR_EVENT_END;
  event.token = answer_.ended_by;
  event.stop = answer_.stop;
  event.stop_index = answer_.stop_index;
  answer_.state = AnswerState::kNone;
}

Status Session::next_event(weir_event& event) {
  Entry entry(*this);
  WEIR_TRY(entry.status());
  WEIR_TRY(check_answer());
  event.n_tokens = kv_.n_tokens();
  event.logprob = NAN;
  if (give_text(event)) return {};
  if (answer_.stop == WEIR_STOP_NONE) {
    weir_token token = -1;
    WEIR_TRY(draw_for_answer(token, answer_.stop));
    if (answer_.stop == WEIR_STOP_NONE) {
      const uint64_t started = begin_step();
      WEIR_TRY(machine_->step(token));
      count_step(token, started);
      give_token(token, event);
      return {};
    }
    answer_.ended_by = token;
  }
  end_answer(event);
  return {};
}

// The event of a token that was appended.
void Session::give_token(weir_token token, weir_event& event) {
  count_token();
  const auto [text, allowed] = push_text(token);
  push_part(token, text);
  parts_.allow(allowed.text.size());
  if (allowed.found >= 0) {
    answer_.stop = WEIR_STOP_STRING;
    answer_.stop_index = allowed.found;
  }
  AnswerParts::Piece piece;
  const bool has_piece = take_part(piece);
  event.kind = WEIR_EVENT_TOKEN;
  event.token = token;
  event.index = answer_.n_tokens - 1;
  event.n_tokens = kv_.n_tokens();
  event.segment = has_piece ? piece.segment : parts_.segment();
  event.text = has_piece ? piece.text.data() : "";
  event.text_bytes = piece.text.size();
  probs_.tell(event);
}

}  // namespace weir
