// The checks that all renderings of conversations share.
#include "text/chat_template.h"

#include <string_view>

namespace weir {
namespace {

constexpr uint32_t kChatFlags =
    WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE | WEIR_CHAT_ACCEPT_RESEMBLING | WEIR_CHAT_CONTINUE_LAST;

Status check_message(const weir_chat_message& message, size_t i) {
  if (message.role == nullptr || (message.content == nullptr && message.content_bytes != 0))
    return fail(WEIR_ERR_INVALID_ARG,
                "messages[%zu] has a NULL role or content, or message_bytes of the options is not their distance", i);
  if (message.thought == nullptr && message.thought_bytes != 0)
    return fail(WEIR_ERR_INVALID_ARG, "messages[%zu] has a NULL thought of %llu bytes", i,
                static_cast<unsigned long long>(message.thought_bytes));
  const std::string_view role = message.role;
  const bool is_answer = role == "assistant", is_result = role == "tool";
  if (!is_answer && !is_result && role != "system" && role != "user" && role != "developer") {
    return fail(WEIR_ERR_INVALID_ARG,
                "messages[%zu]: the role \"%.64s\" is none of system, developer, user, assistant, tool", i,
                message.role);
  }
  if (!is_answer && (message.thought != nullptr || message.tool_calls_json != nullptr))
    return fail(WEIR_ERR_INVALID_ARG, "messages[%zu]: only answers (assistant) have a thought and calls of tools", i);
  if (!is_result && message.tool_call_id != nullptr)
    return fail(WEIR_ERR_INVALID_ARG, "messages[%zu]: only results of tools (tool) have a tool_call_id", i);
  return {};
}

Status check_messages(std::span<const weir_chat_message> messages) {
  for (size_t i = 0; i < messages.size(); ++i) WEIR_TRY(check_message(messages[i], i));
  return {};
}

Status check_flags(std::span<const weir_chat_message> messages, uint32_t flags) {
  if ((flags & ~kChatFlags) != 0) return fail(WEIR_ERR_INVALID_ARG, "chat flags 0x%x are not known", flags);
  if ((flags & WEIR_CHAT_CONTINUE_LAST) == 0) return {};
  if ((flags & (WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE)) != 0) {
    return fail(WEIR_ERR_INVALID_ARG,
                "WEIR_CHAT_CONTINUE_LAST leaves the last answer open: without WEIR_CHAT_ADD_ASSISTANT and "
                "WEIR_CHAT_CONTINUE");
  }
  if (messages.empty() || std::string_view(messages.back().role) != "assistant")
    return fail(WEIR_ERR_INVALID_ARG, "WEIR_CHAT_CONTINUE_LAST needs an answer (assistant) as the last message");
  return {};
}

}  // namespace

Status chat_check(std::span<const weir_chat_message> messages, uint32_t flags) {
  WEIR_TRY(check_messages(messages));
  return check_flags(messages, flags);
}

}  // namespace weir
