// The text of an answer, and the tokens that end its thoughts early.
#include "runtime/answering.h"

#include <algorithm>
#include <memory_resource>

#include "core/utf8.h"

namespace weir {
namespace {

// The text of a control token with which none is shown.
std::string_view hidden_text(const Tokenizer& tokenizer, weir_token token, bool special, std::string_view shown) {
  const bool is_hidden = shown.empty() && !special && tokenizer.decode(token, false, false).empty();
  return is_hidden ? tokenizer.decode(token, true, false) : std::string_view();
}

// The stop strings of the options, in `stops` [StopStrings::kMax].
std::span<const std::string_view> stops_of(const weir_generate_options& options, std::string_view* stops) {
  for (uint32_t i = 0; i < options.n_stop; ++i) stops[i] = {options.stop[i].text, options.stop[i].bytes};
  return {stops, options.n_stop};
}

}  // namespace

Status Answering::check(const weir_generate_options& options) {
  if (options.n_stop > StopStrings::kMax) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: n_stop is %u; there may be %u stop strings",
                options.n_stop, StopStrings::kMax);
  }
  for (uint32_t i = 0; i < options.n_stop; ++i) {
    if (options.stop == nullptr || options.stop[i].text == nullptr)
      return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: stop[%u] is NULL", i);
  }
  std::string_view stops[StopStrings::kMax];
  WEIR_TRY(StopStrings::check(stops_of(options, stops)));
  if (options.n_top <= LogProbs::kMax) return {};
  return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: n_top is %u; events tell at most %u tokens", options.n_top,
              LogProbs::kMax);
}

Status Answering::begin(const weir_generate_options& options) {
  WEIR_TRY(set_thinking(options));
  std::string_view stops[StopStrings::kMax];
  has_stops_ = options.n_stop != 0;
  stops_.begin(stops_of(options, stops));
  detokenizer_.set_special((options.flags & WEIR_GENERATE_SPECIAL_TEXT) != 0);
  const AnswerFormat& format = model_->answer_format();
  const uint32_t n_tokens = kv_.n_tokens();
  if (state_.has_begun && state_.end == n_tokens) {
    parts_.begin(format, AnswerParts::State(parts_.state()));
  } else {
    parts_.begin_behind(format, model_->tokenizer(), record_.view(n_tokens));
  }
  const uint32_t n_forced = state_.n_forced;
  state_ = {};
  state_.has_begun = true;
  state_.first = state_.end = n_tokens;
  state_.start = parts_.state();
  state_.thinking_budget = options.thinking_budget;
  state_.n_forced = n_forced;
  finish_thinking_.store(false);
  state_.flags = options.flags;
  state_.max_tokens = options.max_tokens;
  state_.min_tokens = options.min_tokens;
  state_.n_top = options.n_top;
  probs_ = {};
  return {};
}

void Answering::leave() {
  state_.pull = State::kNone;
  state_.has_begun = state_.has_begun && kv_.n_tokens() >= state_.end;
}

Status Answering::check_place() const {
  if (!state_.runs()) return fail(WEIR_ERR_STATE, "no answer runs: weir_session_begin begins one, and its end ends it");
  if (state_.end == kv_.n_tokens()) return {};
  return fail(WEIR_ERR_STATE, "the conversation has %u tokens and was at %u when the answer's last event was given",
              kv_.n_tokens(), state_.end);
}

void Answering::wipe_all() {
  wipe(&stops_, sizeof(stops_));
  wipe(&parts_, sizeof(parts_));
  wipe(&state_, sizeof(state_));
  wipe(forced_, sizeof(forced_));
  drop_message();
  has_stops_ = false;
  state_ = {};
  wipe(&probs_, sizeof(probs_));
  probs_ = {};
}

// Tokenizes what ends a thought early. Nothing changes after a failure.
Status Answering::set_thinking(const weir_generate_options& options) {
  constexpr size_t kMaxClose = 1024;
  const AnswerFormat& format = model_->answer_format();
  if (!format.has_thoughts() && (options.thinking_budget != 0 || options.thinking_close != nullptr)) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "weir_generate_options: %s is set, but neither chat template nor vocabulary of the model have tags of "
                "thoughts",
                options.thinking_budget != 0 ? "thinking_budget" : "thinking_close");
  }
  if ((options.flags & WEIR_GENERATE_STOP_AT_CALL) != 0 && format.form == CallForm::kNone) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "WEIR_GENERATE_STOP_AT_CALL: the model's chat template has no way of writing calls that is known");
  }
  const std::string_view close = options.thinking_close == nullptr ? "" : options.thinking_close;
  if (close.size() > kMaxClose || utf8_valid_prefix(close) != close.size()) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: thinking_close is no UTF-8 or has more than %zu bytes",
                kMaxClose);
  }
  if (close.empty()) {
    state_.n_forced = format.n_end_tokens;
    std::copy_n(format.end_tokens, format.n_end_tokens, forced_);
    return {};
  }
  // In memory of its own, so that an answer takes none of the session.
  std::byte buffer[32 << 10];
  std::pmr::monotonic_buffer_resource memory(buffer, sizeof(buffer), &memory_);
  std::pmr::string text(close, &memory);
  text.append(format.thought_close);
  const TextRange said = {0, close.size()};
  std::pmr::vector<weir_token> ids(&memory);
  WEIR_TRY(model_->tokenizer().encode_chat(text, {&said, 1}, ids));
  if (ids.size() > kMaxForced) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: thinking_close has %zu tokens; it may have %u",
                ids.size(), kMaxForced);
  }
  state_.n_forced = static_cast<uint32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), forced_);
  return {};
}

bool Answering::force(weir_token& token) {
  if (!state_.is_forcing) {
    const bool is_asked = finish_thinking_.load(std::memory_order_relaxed) && finish_thinking_.exchange(false);
    const bool is_over = state_.thinking_budget != 0 && state_.n_thought >= state_.thinking_budget;
    if (!parts_.in_thought() || state_.n_forced == 0 || !(is_asked || is_over)) return false;
    state_.is_forcing = true;
    state_.n_forced_done = 0;
  }
  token = forced_[state_.n_forced_done];
  probs_ = {};
  return true;
}

int32_t Answering::stop_at(weir_token token) const {
  const Tokenizer& tokenizer = model_->tokenizer();
  const bool ends_calls = state_.has(WEIR_GENERATE_STOP_AT_CALL);
  if (!state_.has(WEIR_GENERATE_IGNORE_EOS) && tokenizer.is_end_of_generation(token))
    return ends_calls && parts_.has_call() ? WEIR_STOP_TOOL_CALL : WEIR_STOP_EOS;
  const bool is_call = ends_calls && parts_.ends_calls(token, tokenizer.decode(token, true, false));
  return is_call ? WEIR_STOP_TOOL_CALL : WEIR_STOP_NONE;
}

Answering::Text Answering::push(weir_token token) {
  Text text = {{}, {}, detokenizer_.held()};
  stops_.mark();
  text.whole = detokenizer_.push(token);
  text.piece = has_stops_ ? stops_.push(text.whole) : StopStrings::Piece{text.whole, -1};
  return text;
}

void Answering::take_back(const Text& text) {
  detokenizer_.restore(text.before);
  stops_.take_back(text.piece.text.size());
}

// A token was appended; its part is not known yet.
void Answering::count_token() {
  ++state_.n_tokens;
  state_.end = kv_.n_tokens();
  if (state_.is_forcing) {
    state_.is_forcing = ++state_.n_forced_done < state_.n_forced;
  } else if (parts_.in_thought()) {
    ++state_.n_thought;
  }
}

// A token that was appended, with its whole text. Of one that is not shown the tags need the text.
void Answering::push_part(weir_token token, std::string_view text) {
  const bool special = state_.has(WEIR_GENERATE_SPECIAL_TEXT);
  parts_.push(token, text, hidden_text(model_->tokenizer(), token, special, text));
}

void Answering::add_shown(weir_token token, const Text& text) {
  count_token();
  push_part(token, text.whole);
  parts_.leave_out();
}

// The next piece of the answer's text. The text of marks is shown with WEIR_GENERATE_SPECIAL_TEXT alone, but calls are
// shown as the model wrote them.
bool Answering::take_part(AnswerParts::Piece& piece) {
  if (!parts_.take(piece)) return false;
  const bool is_mark = piece.segment == WEIR_SEGMENT_MARK && !state_.has(WEIR_GENERATE_SPECIAL_TEXT);
  if (is_mark || (!piece.is_shown && piece.segment != WEIR_SEGMENT_TOOL_CALL)) piece.text = std::string_view("", 0);
  return true;
}

std::string_view Answering::finish(int32_t stop) {
  const bool is_over = stop == WEIR_STOP_EOS || stop == WEIR_STOP_CONTEXT || stop == WEIR_STOP_TOOL_CALL;
  const std::string_view rest = is_over ? detokenizer_.flush() : std::string_view();
  parts_.finish(rest);
  return has_stops_ ? stops_.finish(rest) : rest;
}

bool Answering::give_text(weir_event& event) {
  AnswerParts::Piece piece;
  do {
    if (!take_part(piece)) return false;
  } while (piece.text.empty());
  event.kind = WEIR_EVENT_TEXT;
  event.index = state_.n_tokens;
  event.segment = piece.segment;
  event.text = piece.text.data();
  event.text_bytes = piece.text.size();
  return true;
}

void Answering::give_token(weir_token token, weir_event& event) {
  count_token();
  const Text text = push(token);
  push_part(token, text.whole);
  parts_.allow(text.piece.text.size());
  if (text.piece.found >= 0) {
    state_.stop = WEIR_STOP_STRING;
    state_.stop_index = text.piece.found;
  }
  AnswerParts::Piece piece;
  const bool has_piece = take_part(piece);
  event.kind = WEIR_EVENT_TOKEN;
  event.token = token;
  event.index = state_.n_tokens - 1;
  event.n_tokens = kv_.n_tokens();
  event.segment = has_piece ? piece.segment : parts_.segment();
  event.text = has_piece ? piece.text.data() : "";
  event.text_bytes = piece.text.size();
  probs_.tell(event);
}

void Answering::give_end(weir_event& event) {
  if (state_.pull == State::kRuns) {
    parts_.allow(finish(state_.stop).size());
    state_.pull = State::kEnds;
  }
  if (give_text(event)) return;
  event.text = "";
  event.index = state_.n_tokens;
  event.segment = parts_.segment();
  event.kind = WEIR_EVENT_END;
  event.token = state_.ended_by;
  event.stop = state_.stop;
  event.stop_index = state_.stop_index;
  state_.pull = State::kNone;
}

void Answering::drop_message() {
  destroy_in(memory_, message_);
  message_ = nullptr;
}

// The tokens are pushed once more into a message, as they were when they came.
void Answering::read_again() {
  const AnswerFormat& format = model_->answer_format();
  message_ = make_in<AnswerMessage>(memory_, &memory_, format.form, state_.first);
  const Tokenizer& tokenizer = model_->tokenizer();
  struct Work {
    Detokenizer detokenizer;
    StopStrings stops;
    AnswerParts parts;
  };
  Work* work = make_in<Work>(memory_);
  struct Guard {
    HostMemory& memory;
    Work* work;
    ~Guard() {
      wipe(work, sizeof(*work));
      destroy_in(memory, work);
    }
  } guard{memory_, work};
  const bool special = state_.has(WEIR_GENERATE_SPECIAL_TEXT);
  const bool first =
      state_.first == 0 || state_.first == record_.first() || tokenizer.starts_text_after(record_.at(state_.first - 1));
  work->detokenizer.reset(&tokenizer, special, first);
  work->stops = stops_;
  work->stops.restart();
  work->parts.begin(format, state_.start);
  AnswerParts::Piece piece;
  for (uint32_t i = state_.first; i < state_.end; ++i) {
    const weir_token token = record_.at(i);
    const std::string_view text = work->detokenizer.push(token);
    work->parts.push(token, text, hidden_text(tokenizer, token, special, text));
    work->parts.allow(has_stops_ ? work->stops.push(text).text.size() : text.size());
    while (work->parts.take(piece)) message_->add(piece);
  }
  const std::string_view rest = work->detokenizer.flush();
  work->parts.finish(rest);
  work->parts.allow(!has_stops_ ? rest.size() : state_.stop == WEIR_STOP_STRING ? 0 : work->stops.finish(rest).size());
  while (work->parts.take(piece)) message_->add(piece);
  message_->finish();
}

Status Answering::message(weir_chat_message& message, bool& is_malformed) {
  if (!state_.has_begun) return fail(WEIR_ERR_STATE, "there is no answer, or the session went back since");
  if (state_.first < record_.first())
    return fail(WEIR_ERR_STATE, "the session does not hold the first tokens of the answer any more");
  drop_message();
  read_again();
  message.role = "assistant";
  message.content = message_->content().data();
  message.content_bytes = message_->content().size();
  message.thought = message_->thought().empty() ? nullptr : message_->thought().data();
  message.thought_bytes = message_->thought().size();
  message.tool_calls_json = message_->calls();
  is_malformed = message_->is_malformed();
  return {};
}

}  // namespace weir
