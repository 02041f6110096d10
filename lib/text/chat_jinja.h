// Conversations rendered by the template of the model's own file, in its language (jinja/jinja.h). Control tokens are
// only found in what the template wrote: text of messages, tools and variables is marked as said, through everything
// that the template does with it. Two texts of a message count as the template's: its role, which the caller chose
// among known ones, and, at the beginning of an answer, the mark "<think>" and the next "</think>", which the model
// wrote as tokens.
//
// WEIR_CHAT_CONTINUE: the template renders a question, an answer and then the messages; what it writes behind that
// answer is the rendering. WEIR_CHAT_CONTINUE_LAST: what it writes up to the end of the last message's text.
//
// A message's thought goes into the field that the template reads: reasoning_content, reasoning, thinking or thought.
// Where it reads none but knows "</think>", the thought is put before the content, between these marks. Arguments of
// calls are objects, or texts of JSON where the template goes wrong with objects.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/chat_template.h"

namespace weir {

struct ChatRequest {
  std::span<const weir_chat_message> messages;
  uint32_t flags = 0;  // WEIR_CHAT_*
  std::string_view template_text;
  std::string_view bos, eos;             // texts of these tokens
  const char* tools_json = nullptr;      // null: none
  const char* variables_json = nullptr;  // null: none
  int64_t unix_time = 0;                 // what the template sees of the clock
};

// As weir_chat_tokenize says. Where the template refuses the messages or cannot be run the message has its line. `out`
// is as before after a failure.
Status chat_render_jinja(const ChatRequest& request, RenderedChat& out);

// Adds to `can` (WEIR_CHAT_CAN_*) tools, their results and the switch of thoughts, where a template has them. One that
// cannot be parsed has none.
Status chat_abilities(std::string_view template_text, std::pmr::memory_resource* memory, uint32_t& can);

// Where the text of each message is in a rendering of all of them, but for white space around it: empty where it was
// left out or is written in another way.
void find_messages(std::span<const weir_chat_message> messages, const RenderedChat& rendered,
                   std::pmr::vector<TextRange>& out);

}  // namespace weir
