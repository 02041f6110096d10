// An answer as a message: what was said, what was thought, and the calls of tools, from its pieces.
#pragma once

#include <memory_resource>
#include <string>

#include "text/answer_parts.h"
#include "text/tool_calls/tool_calls.h"

namespace weir {

class AnswerMessage {
 public:
  AnswerMessage(std::pmr::memory_resource* memory, CallForm form, uint64_t first_id)
      : calls_(memory, first_id), content_(memory), thought_(memory), marks_(memory), call_(memory), form_(form) {}
  ~AnswerMessage();
  AnswerMessage(const AnswerMessage&) = delete;
  AnswerMessage& operator=(const AnswerMessage&) = delete;

  void add(const AnswerParts::Piece& piece);
  void finish();

  // White space around them that belongs to tags is left out.
  std::string_view content() const { return content_; }
  std::string_view thought() const { return thought_; }
  const char* calls() const { return calls_.json(); }
  // A call that could not be read is part of the content, with its tags.
  bool is_malformed() const { return is_malformed_; }

 private:
  void end_call();

  ToolCalls calls_;
  std::pmr::string content_, thought_;
  std::pmr::string marks_, call_;  // the latest, of a call that is open
  CallForm form_;
  bool has_marks_ = false, in_call_ = false, in_marks_ = false;
  bool is_malformed_ = false, shows_mark_ = false;
};

}  // namespace weir
