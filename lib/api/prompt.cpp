// A session is made to hold messages: they are rendered and cut into tokens here, and the session takes these.
#include <algorithm>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "api/chat_messages.h"
#include "api/handles.h"
#include "api/text.h"
#include "text/chat_jinja.h"
#include "weir/session.h"

using namespace weir;

namespace {

using Tokens = std::pmr::vector<weir_token>;

// A conversation of which the oldest turns can be left out. A turn begins with each question.
class Prompt {
 public:
  Prompt(const weir_model* model, const api::ChatMessages& messages, const weir_chat_options& options,
         std::pmr::memory_resource* memory)
      : model_(model),
        messages_(messages),
        options_(options),
        turns_(memory),
        list_(memory),
        rendered_(memory),
        ids_(memory) {
    const auto is_system = [](const weir_chat_message& m) {
      return m.role != nullptr && (m.role == std::string_view("system") || m.role == std::string_view("developer"));
    };
    n_first_ = static_cast<size_t>(std::find_if_not(messages.begin(), messages.end(), is_system) - messages.begin());
    for (size_t i = n_first_; i < messages.size(); ++i) {
      const bool is_question = messages[i].role != nullptr && messages[i].role == std::string_view("user");
      if (i == n_first_ || is_question) turns_.push_back(i);
    }
  }

  uint32_t n_dropped() const { return static_cast<uint32_t>(n_turns_dropped_ == 0 ? 0 : first() - n_first_); }
  std::span<const weir_token> tokens() const { return ids_; }

  // Renders without the oldest turns.
  Status render(size_t n_turns_dropped) {
    n_turns_dropped_ = n_turns_dropped;
    list_.assign(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(n_first_));
    list_.insert(list_.end(), messages_.begin() + static_cast<std::ptrdiff_t>(first()), messages_.end());
    ids_.clear();
    return api::encode_chat(model_, list_, options_, rendered_, ids_);
  }

  // Renders with as few turns left out as make it at most `most` tokens, all but the last if there must be.
  Status fit(uint64_t most) {
    WEIR_TRY(render(0));
    if (ids_.size() <= most || turns_.size() < 2) return {};
    size_t too_few = 0, enough = turns_.size() - 1;
    while (too_few + 1 < enough) {
      const size_t middle = too_few + (enough - too_few) / 2;
      WEIR_TRY(render(middle));
      (ids_.size() <= most ? enough : too_few) = middle;
    }
    return n_turns_dropped_ == enough ? Status() : render(enough);
  }
  Status drop_another() { return render(n_turns_dropped_ + 1); }
  bool can_drop() const { return n_turns_dropped_ + 1 < turns_.size(); }

  // Where the messages are among `held` tokens, which stand for the rendered text.
  void spans(std::span<const weir_token> held, weir_span* out) const {
    std::pmr::vector<TextRange> ranges(ids_.get_allocator().resource());
    find_messages(list_, rendered_, ranges);
    std::fill_n(out, messages_.size(), weir_span{0, 0});
    const Tokenizer& tokenizer = model_->model.tokenizer();
    const std::string_view text = rendered_.text;
    size_t at = 0, next = 0;  // byte of the text, message
    bool is_open = false;
    for (uint32_t pos = 0; pos < held.size(); ++pos) {
      const bool first = pos == 0 || tokenizer.starts_text_after(held[pos - 1]);
      const std::string_view piece = tokenizer.decode(held[pos], true, first);
      // A mark may have taken white space with it.
      const size_t skipped = text.substr(at, piece.size() + 64).find(piece);
      if (skipped != std::string_view::npos) at += skipped;
      const size_t end = std::min(at + piece.size(), text.size());
      for (; next < ranges.size() && ranges[next].begin < end; ++next, is_open = false) {
        weir_span& span = out[index_of(next)];
        if (!is_open) span.first = pos;
        is_open = true;
        span.end = ranges[next].begin == ranges[next].end ? span.first : pos + 1;
        if (ranges[next].end > end) break;
      }
      at = end;
    }
    for (; next < ranges.size(); ++next, is_open = false) {
      if (!is_open) out[index_of(next)] = {static_cast<uint32_t>(held.size()), static_cast<uint32_t>(held.size())};
    }
  }

 private:
  size_t first() const { return turns_.empty() ? n_first_ : turns_[n_turns_dropped_]; }
  size_t index_of(size_t kept) const { return kept < n_first_ ? kept : kept - n_first_ + first(); }

  const weir_model* model_;
  const api::ChatMessages& messages_;
  const weir_chat_options& options_;
  size_t n_first_ = 0;  // messages that are never left out
  size_t n_turns_dropped_ = 0;
  std::pmr::vector<size_t> turns_;  // their first messages
  api::ChatMessages list_;
  RenderedChat rendered_;
  Tokens ids_;
};

Status read_prompt_options(const weir_prompt_options* options, uint32_t known, weir_prompt_options& read) {
  WEIR_TRY(api::read_struct(options, "weir_prompt_options", read));
  if ((read.flags & ~known) == 0 && read.reserved == 0) return {};
  return fail(WEIR_ERR_INVALID_ARG, "weir_prompt_options: flags 0x%x are not known here, or reserved is not 0",
              read.flags);
}

Status prompt(weir_session* session, const weir_chat_message* messages, uint64_t n_messages,
              const weir_prompt_options& options, weir_span* spans, weir_prompt_report& report) {
  const auto* model = static_cast<const weir_model*>(session->owner());
  std::pmr::memory_resource* memory = &model->runtime->memory;
  weir_chat_options defaults = WEIR_CHAT_OPTIONS_INIT, chat;
  defaults.flags = WEIR_CHAT_ADD_ASSISTANT;
  defaults.message_bytes = api::kPromptMessageBytes;
  api::ChatMessages list(memory);
  WEIR_TRY(api::read_chat("weir_session_prompt", messages, n_messages,
                          options.chat != nullptr ? options.chat : &defaults, chat, list));
  if (list.empty()) return fail(WEIR_ERR_INVALID_ARG, "weir_session_prompt: there are no messages");
  if ((chat.flags & WEIR_CHAT_CONTINUE) != 0) {
    return fail(WEIR_ERR_INVALID_ARG,
                "weir_session_prompt: WEIR_CHAT_CONTINUE is for weir_chat_tokenize; give all messages here");
  }
  if (chat.progress != nullptr)
    return fail(WEIR_ERR_INVALID_ARG, "weir_session_prompt: the progress of the chat options is not NULL");
  const bool drops = (options.flags & WEIR_PROMPT_DROP_OLDEST) != 0;
  const uint32_t context = session->plan_info().context_tokens;
  Prompt made(model, list, chat, memory);
  WEIR_TRY(drops ? made.fit(context - std::min(context, options.reserve_tokens)) : made.render(0));
  weir_prompt_options inner = options;
  inner.flags &= ~static_cast<uint32_t>(WEIR_PROMPT_DROP_OLDEST);
  Status status = session->prompt_tokens(made.tokens(), inner, report);
  // An answer that was drawn may have more tokens than its text has when it is cut anew.
  while (drops && status.code() == WEIR_ERR_CONTEXT_FULL && made.can_drop()) {
    WEIR_TRY(made.drop_another());
    status = session->prompt_tokens(made.tokens(), inner, report);
  }
  WEIR_TRY(status);
  report.n_messages_dropped = made.n_dropped();
  if (spans == nullptr) return {};
  std::span<const weir_token> held = made.tokens();
  const weir_token* all = nullptr;
  uint32_t n_all = 0;
  if ((options.flags & WEIR_PROMPT_MEASURE) == 0) WEIR_TRY(session->tokens(all, n_all));
  if (n_all == report.n_tokens) held = {all, n_all};
  made.spans(held, spans);
  return {};
}

}  // namespace

weir_status weir_session_prompt(weir_session* session, const weir_chat_message* messages, uint64_t n_messages,
                                const weir_prompt_options* options, weir_span* spans, weir_prompt_report* report) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(messages);
  return api::guard([&]() -> Status {
    weir_prompt_options read;
    constexpr uint32_t kKnown =
        uint32_t{WEIR_PROMPT_MEASURE} | uint32_t{WEIR_PROMPT_EXACT} | uint32_t{WEIR_PROMPT_DROP_OLDEST};
    WEIR_TRY(read_prompt_options(options, kKnown, read));
    if (report != nullptr) WEIR_TRY(api::check_out_struct(report, "weir_prompt_report"));
    weir_prompt_report value = WEIR_PROMPT_REPORT_INIT;
    WEIR_TRY(prompt(session, messages, n_messages, read, spans, value));
    if (report != nullptr) api::write_struct(value, report);
    return {};
  });
}

weir_status weir_session_prompt_tokens(weir_session* session, const weir_token* tokens, uint64_t n_tokens,
                                       const weir_prompt_options* options, weir_prompt_report* report) {
  WEIR_API_REQUIRE(session);
  WEIR_API_REQUIRE(tokens);
  return api::guard([&]() -> Status {
    weir_prompt_options read;
    WEIR_TRY(read_prompt_options(options, uint32_t{WEIR_PROMPT_MEASURE} | uint32_t{WEIR_PROMPT_EXACT}, read));
    if (read.chat != nullptr) return fail(WEIR_ERR_INVALID_ARG, "weir_prompt_options: chat is for weir_session_prompt");
    if (report != nullptr) WEIR_TRY(api::check_out_struct(report, "weir_prompt_report"));
    if (n_tokens == 0) return fail(WEIR_ERR_INVALID_ARG, "weir_session_prompt_tokens: n_tokens is 0");
    weir_prompt_report value = WEIR_PROMPT_REPORT_INIT;
    WEIR_TRY(session->prompt_tokens({tokens, n_tokens}, read, value));
    if (report != nullptr) api::write_struct(value, report);
    return {};
  });
}
