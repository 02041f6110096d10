// Chat rendering by families of templates, small functions here. chat_known.inc lists fingerprints of the templates for
// which a comparison with Jinja has shown that a family renders exactly what they do. Any other template is run itself
// (chat_jinja.h), never guessed at: characteristic pieces only show which family it resembles, and the caller may ask
// for that one.
//
// Every family renders what its templates render for conversations of the roles system, user and assistant, without
// tools. WEIR_CHAT_CONTINUE closes the model's turn as the family does; no BOS and no default system message come then.
// Two things differ from the templates on purpose:
//   - The opening of an answer comes with WEIR_CHAT_ADD_ASSISTANT and only with it; some templates write it always, or
//     never behind an answer.
//   - Dates are those that templates fall back to without a clock, because a rendering must not depend on a clock.
//
//   family          form of a turn, and what is special
//   chatml          <|im_start|>ROLE\nTEXT<|im_end|>\n. Any order of roles. BOS only where the template has it.
//   qwen2.5 qwen2 qwen1.5 qwen2.5-math smollm2
//                   chatml; a conversation that does not begin with a system message gets the template's default one,
//                   as these models expect it. Default messages of other templates are left out.
//   qwen3           chatml; thoughts (up to </think>) of answers before the last question are left out, an answer
//                   behind it always has them
//   qwq             chatml; an answer begins with <think>\n; thoughts are left out except of the last message
//   llama3          BOS once, <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>, texts trimmed. Any order.
//   llama3.1        llama3; there is always a system turn with the template's dates, today being the day that the
//                   template falls back to (26 Jul 2024)
//   llama2          BOS before each question, [INST] <<SYS>>..<</SYS>> TEXT [/INST] TEXT EOS, trimmed
//   mistral         BOS, [INST] TEXT [/INST]TEXT EOS; a system message, which these templates refuse, is put before the
//                   first question
//   mistral-v1      the same with more spaces; a system message is put before the first question
//   mistral-v3 mistral-v3-tekken
//                   [INST] TEXT[/INST] TEXT EOS, tekken without the spaces; a system message is put before the last
//                   question if the conversation ends with it, as the templates have it
//   mistral-v7 mistral-v7-tekken
//                   [SYSTEM_PROMPT] TEXT[/SYSTEM_PROMPT], then as v3; the default system message with today's date is
//                   left out
//   deepseek-r1     BOS, system text, <｜User｜>TEXT, <｜Assistant｜>TEXT<｜end▁of▁sentence｜>; thoughts of answers are left
//                   out; an answer begins with <think>\n where the template says so. Any order of questions and
//                   answers, except with the templates of R1-0528.
//   deepseek-llm    BOS, TEXT\n\n, User: TEXT\n\n, Assistant: TEXT EOS. Any order of roles.
//   phi3            <|ROLE|>\nTEXT<|end|>\n. Any order of roles. BOS only where the template has it; the EOS that it
//                   writes when no answer is asked for is left out
//   gemma           BOS, <start_of_turn>user|model\nTEXT<end_of_turn>\n, trimmed; a system message is put before the
//                   first question
//   zephyr          <|ROLE|>\nTEXT EOS\n. Any order of roles.
//
// Families that do not take any order want at most one system message, at the beginning of the conversation; llama2,
// mistral* and gemma want questions and answers in turn. Anything else is WEIR_ERR_INVALID_ARG naming the message.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "text/tokenizer.h"
#include "weir/text.h"

namespace weir {

enum class ChatFamily : uint8_t {
  kNone,
#define WEIR_CHAT_FAMILY(Name, text) k##Name,
#include "text/chat_families.inc"
#undef WEIR_CHAT_FAMILY
  kUnknown,
};

const char* chat_family_name(ChatFamily family);  // "chatml"; "" for kNone, "unknown" for kUnknown

// What is known of a template: the family that renders it exactly, or else the one that it resembles.
struct ChatTemplate {
  ChatFamily family = ChatFamily::kNone;  // kNone: there is no template; kUnknown: it resembles nothing known
  bool is_exact = false;

  // For weir_model_info.
  const char* name() const;
  const char* resembles() const;
};

ChatTemplate chat_template_of(std::string_view template_text);

// A rendered conversation: all of its text, and which stretches of it are text of messages.
struct RenderedChat {
  explicit RenderedChat(std::pmr::memory_resource* memory) : text(memory), said(memory) {}

  std::pmr::string text;
  std::pmr::vector<TextRange> said;  // ascending, none empty
};

// What any rendering wants of its arguments: flags that are known, roles, contents.
Status chat_check(std::span<const weir_chat_message> messages, uint32_t flags);

// Renders into `out`. flags: WEIR_CHAT_*. `bos` and `eos` are the texts of these tokens ("" when there is none;
// families that need an EOS then write </s>, which their models have); a rendering that starts a conversation includes
// `bos` where the family's template does. `out` is as before after a failure.
Status chat_render(const ChatTemplate& chat_template, std::span<const weir_chat_message> messages, uint32_t flags,
                   std::string_view bos, std::string_view eos, RenderedChat& out);

}  // namespace weir
