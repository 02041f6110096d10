// What the parts of a model's answers look like: the tags of its thoughts and tool calls. They are found once, in the
// text of its chat template, or if it has none in its vocabulary. A tag that the vocabulary has as a token of its own
// is that token alone, so that nothing which is merely spelled like it counts; any other tag is text, whatever its
// tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "text/tokenizer.h"

namespace weir {

// Where in an answer a token is. The first three are segments of the same number (weir_segment); a header is what names
// the message that follows, between tags.
enum class AnswerPlace : uint8_t { kAnswer, kThought, kCall, kHeader };

struct AnswerTag {
  static constexpr uint8_t kByHeader = 255;

  std::string_view text;   // static
  weir_token token = -1;   // of this text; -1: none
  uint8_t from = 0;        // bits 1 << AnswerPlace: where it is a tag
  uint8_t to = 0;          // AnswerPlace behind it, or kByHeader
  uint8_t call = 0;        // which tags that begin and end a call belong together
  bool is_kept = false;    // it is part of the call
  bool ends_call = false;  // only the call that `call` began
};

// How the text of a call is read (tool_calls.h).
enum class CallForm : uint8_t { kNone, kByLook, kHarmony, kMistral, kFields, kGemma, kPython, kLlama, kNested };

struct AnswerFormat {
  static constexpr size_t kMaxTags = 10, kMaxTagBytes = 48, kMaxEndTokens = 24;

  std::array<AnswerTag, kMaxTags> tag;
  uint32_t n_tags = 0;
  // Tags of thoughts, "" without; and what is appended to end one early: its tokens, from `n_end_tokens`.
  const char *thought_begin = "", *thought_end = "", *thought_close = "";
  weir_token end_tokens[kMaxEndTokens];
  uint32_t n_end_tokens = 0;
  const char* tool_format = "";
  CallForm form = CallForm::kNone;
  bool bare_calls = false;  // an answer that begins with an object that names a function is a call

  std::span<const AnswerTag> tags() const { return {tag.data(), n_tags}; }
  bool has_thoughts() const { return n_end_tokens != 0; }
};

// The format by the text of a template, and where that has no tags by the marks of a vocabulary (may be null).
AnswerFormat answer_format_of(std::string_view template_text, const Tokenizer* tokenizer);
// Finds the tags' tokens; `memory` is only used meanwhile.
Status find_answer_tokens(const Tokenizer& tokenizer, std::pmr::memory_resource* memory, AnswerFormat& format);
}  // namespace weir
