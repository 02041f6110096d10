// Conversations rendered by the template of the model's own file, in its language (jinja/jinja.h). Control tokens are
// only found in what the template wrote: text of messages is marked as said, through everything that the template does
// with it. Two texts of a message count as the template's: its role, which the caller chose among known ones, and, at
// the beginning of an answer, the mark "<think>" and the next "</think>", which the model wrote as tokens.
//
// WEIR_CHAT_CONTINUE: the template renders a question, an answer and then the messages; what it writes behind that
// answer is the rendering.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>

#include "core/status.h"
#include "text/chat_template.h"

namespace weir {

// As chat_render (chat_template.h), and `unix_time` is what the template sees of the clock. Where the template refuses
// the messages or cannot be run the message has its line.
Status chat_render_jinja(std::string_view template_text, std::span<const weir_chat_message> messages, uint32_t flags,
                         std::string_view bos, std::string_view eos, int64_t unix_time, RenderedChat& out);

}  // namespace weir
