// Recognising a family, and the checks that all renderings share.
#include "text/chat_template.h"

#include "text/chat_families.h"

namespace weir {
namespace {

constexpr size_t kFirstFamily = static_cast<size_t>(ChatFamily::kNone) + 1;

Status check_messages(std::span<const weir_chat_message> messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const weir_chat_message& message = messages[i];
    if (message.role == nullptr || (message.content == nullptr && message.content_bytes != 0)) {
      return fail(WEIR_ERR_INVALID_ARG, "messages[%zu] has a NULL role or content", i);
    }
    const std::string_view role = message.role;
    if (role != "system" && role != "user" && role != "assistant") {
      return fail(WEIR_ERR_INVALID_ARG, "messages[%zu]: the role \"%.64s\" is none of system, user, assistant", i,
                  message.role);
    }
  }
  return {};
}

}  // namespace

ChatFamily chat_family_of(std::string_view template_text) {
  if (template_text.empty()) return ChatFamily::kNone;
  const TemplateText text = {template_text};
  const auto families = chat_families();
  for (size_t i = 0; i < families.size(); ++i) {
    if (families[i].matches(text)) return static_cast<ChatFamily>(kFirstFamily + i);
  }
  return ChatFamily::kUnknown;
}

const char* chat_family_name(ChatFamily family) {
  if (family == ChatFamily::kNone) return "";
  const size_t i = static_cast<size_t>(family) - kFirstFamily;
  return i < chat_families().size() ? chat_families()[i].name : "unknown";
}

Status chat_render(ChatFamily family, std::span<const weir_chat_message> messages, uint32_t flags, std::string_view bos,
                   std::string_view eos, std::pmr::string& out) {
  if (family == ChatFamily::kNone)
    return fail(WEIR_ERR_UNSUPPORTED, "the model's file has no chat template (tokenizer.chat_template)");
  const size_t i = static_cast<size_t>(family) - kFirstFamily;
  if (i >= chat_families().size()) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's chat template (tokenizer.chat_template) is of no family that this version knows");
  }
  if ((flags & ~static_cast<uint32_t>(WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE)) != 0) {
    return fail(WEIR_ERR_INVALID_ARG, "chat flags 0x%x are not known", flags);
  }
  WEIR_TRY(check_messages(messages));
  std::pmr::string rendered(out.get_allocator());
  const Chat chat = {messages, (flags & WEIR_CHAT_CONTINUE) != 0, (flags & WEIR_CHAT_ADD_ASSISTANT) != 0,
                     bos,      eos.empty() ? "</s>" : eos,        rendered};
  WEIR_TRY(chat_families()[i].render(chat));
  out.append(rendered);
  return {};
}

}  // namespace weir
