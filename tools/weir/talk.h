// The messages of a conversation and the session that holds them. Whatever is done to the messages, prompt() makes the
// session hold them: it reads what is new, and goes back to what was changed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir_cpp.h"

namespace weir_cli {

class Talk {
 public:
  // `session` may hold a conversation from a file already. Its messages are not known: they stay as they are.
  Talk(const weir_model* model, weir_session* session, uint32_t context_tokens);

  // Both begin the messages anew, the second with what the session holds.
  void forget();
  void resume();

  // "" for none. Not after resume(), whose conversation has its own.
  void set_system(const std::string& text);
  const std::string& system() const { return system_; }
  bool can_set_system() const { return held_.empty(); }
  // What the chat template is given besides the messages.
  ChatSettings& settings() { return settings_; }

  const std::vector<Message>& messages() const { return messages_; }  // without the system message
  size_t n_questions() const;
  // The text of a question, counted from 1.
  const std::string& question(size_t number) const { return messages_[2 * (number - 1)].content; }
  void ask(const std::string& text);
  // The session's latest answer, of which `text` is all, tags included. Where the template has a place for thoughts the
  // message has them apart, as it wants them.
  void add_answer(const std::string& text);
  // Forgets the answer to the last question, or question `number` and all behind it.
  void drop_answer();
  void drop_from(size_t number);

  // The session then holds the messages, with an answer opened. Where they are too many for the context the oldest ones
  // are left out from then on, about half of it. `on_progress` returning false stops it; the messages stay, and the
  // next call goes on. Throws Error.
  weir_prompt_report prompt(const PrefillFn& on_progress);
  // The session then holds the messages to the end of the last answer, and nothing that was taken back: for saving it.
  // Throws std::runtime_error.
  void settle();

 private:
  // A prompt of the session as the messages are from `n_left_out_` on.
  weir_status prompt_messages(uint32_t chat_flags, weir_prompt_options& options, weir_prompt_report* report) const;
  // The tokens of these messages behind an open answer. flags: WEIR_CHAT_*.
  std::vector<weir_token> tokens_behind(const std::vector<Message>& messages, uint32_t flags) const;
  bool takes_thoughts() const;

  const weir_model* model_;
  weir_session* session_;
  uint32_t context_tokens_;
  std::string system_;
  ChatSettings settings_;
  std::vector<Message> messages_;
  size_t n_left_out_ = 0;         // of these, the oldest
  std::vector<weir_token> held_;  // before them, of a conversation from a file
};

}  // namespace weir_cli
