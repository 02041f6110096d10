// An answer as a message; see answer_message.h.
#include "text/answer_message.h"

#include "core/memory.h"
#include "text/tool_calls/transcode.h"

namespace weir {

AnswerMessage::~AnswerMessage() {
  for (std::pmr::string* text : {&content_, &thought_, &marks_, &call_}) wipe(text->data(), text->size());
  calls_.wipe();
}

void AnswerMessage::end_call() {
  if (!in_call_) return;
  in_call_ = false;
  const ToolCalls::Kind kind = calls_.add(form_, marks_, call_);
  if (kind == ToolCalls::Kind::kMalformed) {
    is_malformed_ = shows_mark_ = true;
    content_.append(marks_);
  }
  if (kind != ToolCalls::Kind::kCalls) content_.append(call_);
  call_.clear();
}

void AnswerMessage::add(const AnswerParts::Piece& piece) {
  const bool is_mark = piece.segment == WEIR_SEGMENT_MARK, is_call = piece.segment == WEIR_SEGMENT_TOOL_CALL;
  has_marks_ = has_marks_ || is_mark || is_call;
  if (!is_call) end_call();
  if (is_mark) {
    if (shows_mark_) content_.append(piece.text);
    shows_mark_ = false;
    // A header is several of them.
    if (!in_marks_ || form_ != CallForm::kHarmony) marks_.clear();
    marks_.append(piece.text);
    in_call_ = piece.opens_call;
  } else if (is_call) {
    in_call_ = true;
    call_.append(piece.text);
  } else if (piece.is_shown) {
    shows_mark_ = false;
    (piece.segment == WEIR_SEGMENT_THOUGHT ? thought_ : content_).append(piece.text);
  }
  if (!is_mark && !is_call) marks_.clear();
  in_marks_ = is_mark;
}

void AnswerMessage::finish() {
  end_call();
  const auto trim = [](std::pmr::string& text) {
    const std::string_view inside = without_space_around(text);
    const size_t first = inside.empty() ? text.size() : static_cast<size_t>(inside.data() - text.data());
    text.resize(first + inside.size());
    text.erase(0, first);
  };
  trim(thought_);
  if (has_marks_ && !is_malformed_) trim(content_);
}

}  // namespace weir
