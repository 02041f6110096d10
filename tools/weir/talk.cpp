// Messages and their session; see talk.h.
#include "talk.h"

#include <algorithm>
#include <stdexcept>

namespace weir_cli {

Talk::Talk(const weir_model* model, weir_session* session, uint32_t context_tokens)
    : model_(model), session_(session), context_tokens_(context_tokens) {
  resume();
}

void Talk::forget() {
  messages_.clear();
  n_left_out_ = 0;
  held_.clear();
  check(weir_session_reset(session_), "cannot reset the session");
}

void Talk::resume() {
  const weir_token* tokens = nullptr;
  uint32_t n_tokens = 0;
  check(weir_session_tokens(session_, &tokens, &n_tokens), "cannot read the conversation");
  messages_.clear();
  n_left_out_ = 0;
  held_.assign(tokens, tokens + n_tokens);
}

void Talk::set_system(const std::string& text) { system_ = text; }

size_t Talk::n_questions() const { return (messages_.size() + 1) / 2; }

void Talk::ask(const std::string& text) {
  drop_from(n_questions() + (messages_.size() % 2 == 1 ? 0 : 1));  // a question without an answer was stopped
  messages_.push_back({"user", text});
}

// Whether a thought that is given apart appears in what the template makes of the latest answer.
bool Talk::takes_thoughts() const {
  constexpr char kThought[] = "a-th0ught-of-its-own";
  const Message messages[] = {{"user", "?"}, {"assistant", "!", kThought}};
  const weir_chat_message views[] = {view_of(messages[0]), view_of(messages[1])};
  const weir_chat_options options = chat_options(settings_, 0);
  std::string text(1 << 16, '\0');
  uint64_t n_bytes = 0;
  if (weir_chat_render_with(model_, views, 2, &options, text.data(), text.size(), &n_bytes) != WEIR_OK) return false;
  return text.substr(0, n_bytes).find(kThought) != std::string::npos;
}

void Talk::add_answer(const std::string& text) {
  Message& answer = messages_.emplace_back(Message{"assistant", text});
  weir_chat_message parsed = WEIR_CHAT_MESSAGE_INIT;
  if (!takes_thoughts() || weir_session_answer(session_, &parsed, sizeof(parsed), nullptr) != WEIR_OK) return;
  answer.content.assign(parsed.content, parsed.content_bytes);
  answer.thought.assign(parsed.thought != nullptr ? parsed.thought : "", parsed.thought_bytes);
}

void Talk::drop_answer() {
  if (!messages_.empty() && messages_.size() % 2 == 0) messages_.pop_back();
}

void Talk::drop_from(size_t number) {
  messages_.resize(std::min(messages_.size(), 2 * (number - 1)));
  n_left_out_ = std::min(n_left_out_, messages_.size());
}

weir_status Talk::prompt_messages(uint32_t chat_flags, weir_prompt_options& options, weir_prompt_report* report) const {
  const weir_chat_options chat = chat_options(settings_, chat_flags);
  std::vector<weir_chat_message> views;
  const Message system = {"system", system_};
  if (!system_.empty()) views.push_back(view_of(system));
  for (size_t i = n_left_out_; i < messages_.size(); ++i) views.push_back(view_of(messages_[i]));
  options.chat = &chat;
  const weir_status status = weir_session_prompt(session_, views.data(), views.size(), &options, nullptr, report);
  options.chat = nullptr;
  return status;
}

std::vector<weir_token> Talk::tokens_behind(const std::vector<Message>& messages, uint32_t flags) const {
  return tokenize_chat(model_, messages, flags | uint32_t{WEIR_CHAT_CONTINUE}, settings_);
}

weir_prompt_report Talk::prompt(const PrefillFn& on_progress) {
  Callback<PrefillFn> callback{on_progress};
  weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
  options.progress = [](void* user, const weir_progress_info* info) -> weir_status {
    return static_cast<Callback<PrefillFn>*>(user)->call(info->done, info->total);
  };
  options.progress_user = &callback;
  weir_prompt_report report = WEIR_PROMPT_REPORT_INIT;
  weir_status status;
  if (held_.empty()) {
    const auto prompt = [&](uint32_t flags, uint32_t reserve) {
      options.flags = flags;
      options.reserve_tokens = reserve;
      return prompt_messages(WEIR_CHAT_ADD_ASSISTANT, options, &report);
    };
    const uint32_t least = std::min<uint32_t>(context_tokens_ / 8, 256);  // room for an answer
    status = prompt(0, least);
    // Half of the context at once, because everything behind what is left out is read again.
    for (const uint32_t reserve : {context_tokens_ / 2, least}) {
      if (status == WEIR_ERR_CONTEXT_FULL) status = prompt(WEIR_PROMPT_DROP_OLDEST, reserve);
    }
    if (status == WEIR_OK) n_left_out_ += report.n_messages_dropped;
  } else {
    std::vector<weir_token> tokens = held_;
    const std::vector<weir_token> more = tokens_behind(messages_, WEIR_CHAT_ADD_ASSISTANT);
    tokens.insert(tokens.end(), more.begin(), more.end());
    status = weir_session_prompt_tokens(session_, tokens.data(), tokens.size(), &options, &report);
  }
  if (callback.thrown) std::rethrow_exception(callback.thrown);
  check(status, "cannot read the conversation");
  return report;
}

void Talk::settle() {
  drop_from(messages_.size() / 2 + 1);  // a question without an answer was stopped
  weir_status status = WEIR_OK;
  if (held_.empty() && messages_.empty()) {
    status = weir_session_reset(session_);
  } else if (held_.empty()) {
    weir_prompt_options options = WEIR_PROMPT_OPTIONS_INIT;
    status = prompt_messages(WEIR_CHAT_CONTINUE_LAST, options, nullptr);
  } else {
    std::vector<weir_token> tokens = held_;
    if (!messages_.empty()) {
      // What the template writes behind an answer is for the next question to begin with.
      std::vector<weir_token> more = tokens_behind(messages_, 0);
      const std::vector<weir_token> end = tokens_behind({}, 0);
      if (end.size() > more.size() || !std::equal(end.rbegin(), end.rend(), more.rbegin()))
        throw std::runtime_error(
            "the chat template does not write an answer alike at the end and before it: ask once "
            "more before this is saved");
      more.resize(more.size() - end.size());
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    status = weir_session_prompt_tokens(session_, tokens.data(), tokens.size(), nullptr, nullptr);
  }
  check(status, "cannot take back what was said");
}

}  // namespace weir_cli
