// The parts of an answer that the session itself writes or reads again: the end of a thought that is over its budget,
// and the answer as a message.
#include <algorithm>
#include <memory_resource>

#include "core/utf8.h"
#include "runtime/session_entry.h"

namespace weir {

// Tokenizes what ends a thought early. Nothing changes after a failure.
Status Session::set_thinking(const weir_generate_options& options) {
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
    answer_.n_forced = format.n_end_tokens;
    std::copy_n(format.end_tokens, format.n_end_tokens, forced_);
    return {};
  }
  // In memory of its own, so that an answer takes none of the session.
  std::byte buffer[32 << 10];
  std::pmr::monotonic_buffer_resource memory(buffer, sizeof(buffer), &parent_);
  std::pmr::string text(close, &memory);
  text.append(format.thought_close);
  const TextRange said = {0, close.size()};
  std::pmr::vector<weir_token> ids(&memory);
  WEIR_TRY(model_->tokenizer().encode_chat(text, {&said, 1}, ids));
  if (ids.size() > kMaxForced) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_generate_options: thinking_close has %zu tokens; it may have %u",
                ids.size(), kMaxForced);
  }
  answer_.n_forced = static_cast<uint32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), forced_);
  return {};
}

// Whether the next token is one of those that end a thought early.
bool Session::force(weir_token& token) {
  if (!answer_.is_forcing) {
    const bool is_asked = finish_thinking_.load(std::memory_order_relaxed) && finish_thinking_.exchange(false);
    const bool is_over = answer_.thinking_budget != 0 && answer_.n_thought >= answer_.thinking_budget;
    if (!parts_.in_thought() || answer_.n_forced == 0 || !(is_asked || is_over)) return false;
    answer_.is_forcing = true;
    answer_.n_forced_done = 0;
  }
  token = forced_[answer_.n_forced_done];
  drawn_ = token;
  drawn_for_ = kv_.n_tokens();
  probs_ = {};
  return true;
}

std::string_view Session::hidden_text(const Tokenizer& tokenizer, weir_token token, bool special,
                                      std::string_view shown) {
  const bool is_hidden = shown.empty() && !special && tokenizer.decode(token, false, false).empty();
  return is_hidden ? tokenizer.decode(token, true, false) : std::string_view();
}

// A token was appended; its part is not known yet.
void Session::count_token() {
  ++answer_.n_tokens;
  answer_.end = kv_.n_tokens();
  if (answer_.is_forcing) {
    answer_.is_forcing = ++answer_.n_forced_done < answer_.n_forced;
  } else if (parts_.in_thought()) {
    ++answer_.n_thought;
  }
}

void Session::drop_message() {
  destroy_in(parent_, message_);
  message_ = nullptr;
}

// The tokens are pushed once more, as they were when they came.
Status Session::answer(weir_chat_message& message, bool& is_malformed) {
  const Lock lock(*this);
  WEIR_TRY(lock.status());
  if (!answer_.has_begun) return fail(WEIR_ERR_STATE, "there is no answer, or the session went back since");
  if (answer_.first < record_.first())
    return fail(WEIR_ERR_STATE, "the session does not hold the first tokens of the answer any more");
  drop_message();
  const AnswerFormat& format = model_->answer_format();
  message_ = make_in<AnswerMessage>(parent_, &parent_, format.form, answer_.first);
  const Tokenizer& tokenizer = model_->tokenizer();
  struct Work {
    Detokenizer detokenizer;
    StopStrings stops;
    AnswerParts parts;
  };
  Work* work = make_in<Work>(parent_);
  struct Guard {
    HostMemory& memory;
    Work* work;
    ~Guard() {
      wipe(work, sizeof(*work));
      destroy_in(memory, work);
    }
  } guard{parent_, work};
  const bool special = (answer_.flags & WEIR_GENERATE_SPECIAL_TEXT) != 0;
  const bool first = answer_.first == 0 || answer_.first == record_.first() ||
                     tokenizer.starts_text_after(record_.at(answer_.first - 1));
  work->detokenizer.reset(&tokenizer, special, first);
  work->stops = stops_;
  work->stops.restart();
  work->parts.begin(format, answer_.start);
  AnswerParts::Piece piece;
  for (uint32_t i = answer_.first; i < answer_.end; ++i) {
    const weir_token token = record_.at(i);
    const std::string_view text = work->detokenizer.push(token);
    work->parts.push(token, text, hidden_text(tokenizer, token, special, text));
    work->parts.allow(has_stops_ ? work->stops.push(text).text.size() : text.size());
    while (work->parts.take(piece)) message_->add(piece);
  }
  const std::string_view rest = work->detokenizer.flush();
  work->parts.finish(rest);
  work->parts.allow(!has_stops_ ? rest.size() : answer_.stop == WEIR_STOP_STRING ? 0 : work->stops.finish(rest).size());
  while (work->parts.take(piece)) message_->add(piece);
  message_->finish();
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
