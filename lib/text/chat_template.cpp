// Recognising a template, and the checks that all renderings share.
#include "text/chat_template.h"

#include <algorithm>

#include "text/chat_families.h"
#include "text/sha256.h"

namespace weir {
namespace {

// Longer texts are no model's template: the known ones have at most 6 KB. Searching a text as long as a file can be
// would take a minute.
constexpr size_t kMaxTemplateBytes = size_t{256} << 10;
constexpr size_t kFirstFamily = static_cast<size_t>(ChatFamily::kNone) + 1;
constexpr uint32_t kChatFlags =
    WEIR_CHAT_ADD_ASSISTANT | WEIR_CHAT_CONTINUE | WEIR_CHAT_ACCEPT_RESEMBLING | WEIR_CHAT_CONTINUE_LAST;

struct KnownTemplate {
  ChatFamily family;
  uint32_t n_bytes;
  std::string_view sha256;  // in hexadecimal digits
};
constexpr KnownTemplate kKnown[] = {
#define WEIR_CHAT_TEMPLATE(Family, n_bytes, sha256, names) {ChatFamily::k##Family, n_bytes, sha256},
#include "text/chat_known.inc"
#undef WEIR_CHAT_TEMPLATE
};

bool has_digits(const Sha256& hash, std::string_view digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  bool same = digits.size() == 2 * hash.size();
  for (size_t i = 0; same && i < hash.size(); ++i) {
    same = digits[2 * i] == kDigits[hash[i] >> 4] && digits[2 * i + 1] == kDigits[hash[i] & 15];
  }
  return same;
}

// The template without the line end at its end, which Jinja drops and in which files differ.
std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

const KnownTemplate* find_known(std::string_view template_text) {
  const std::string_view text = without_line_end(template_text);
  const auto same_size = [&](const KnownTemplate& known) { return known.n_bytes == text.size(); };
  const KnownTemplate* at = std::find_if(std::begin(kKnown), std::end(kKnown), same_size);
  if (at == std::end(kKnown)) return nullptr;  // mostly no hash is needed
  const Sha256 hash = sha256(text);
  at = std::find_if(at, std::end(kKnown),
                    [&](const KnownTemplate& known) { return same_size(known) && has_digits(hash, known.sha256); });
  return at == std::end(kKnown) ? nullptr : at;
}

ChatFamily family_like(std::string_view template_text) {
  const TemplateText text = {template_text};
  const auto families = chat_families();
  for (size_t i = 0; i < families.size(); ++i) {
    if (families[i].matches(text)) return static_cast<ChatFamily>(kFirstFamily + i);
  }
  return ChatFamily::kUnknown;
}

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

// Whether the template can be rendered with these flags.
Status check_template(const ChatTemplate& chat_template, uint32_t flags) {
  if (chat_template.family == ChatFamily::kNone) {
    return fail(WEIR_ERR_UNSUPPORTED, "the model's file has no chat template (tokenizer.chat_template)");
  }
  if (chat_template.family == ChatFamily::kUnknown) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's chat template (tokenizer.chat_template) is none that this version knows, and resembles "
                "none");
  }
  if (!chat_template.is_exact && (flags & WEIR_CHAT_ACCEPT_RESEMBLING) == 0) {
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's chat template (tokenizer.chat_template) is none that this version knows exactly; it "
                "resembles the family %s, which WEIR_CHAT_ACCEPT_RESEMBLING accepts",
                chat_family_name(chat_template.family));
  }
  return {};
}

}  // namespace

ChatTemplate chat_template_of(std::string_view template_text) {
  if (template_text.empty()) return {};
  if (template_text.size() > kMaxTemplateBytes) return {ChatFamily::kUnknown, false};
  if (const KnownTemplate* known = find_known(template_text)) return {known->family, true};
  return {family_like(template_text), false};
}

const char* chat_family_name(ChatFamily family) {
  if (family == ChatFamily::kNone) return "";
  const size_t i = static_cast<size_t>(family) - kFirstFamily;
  return i < chat_families().size() ? chat_families()[i].name : "unknown";
}

const char* ChatTemplate::name() const {
  return family == ChatFamily::kNone || is_exact ? chat_family_name(family) : "unknown";
}

const char* ChatTemplate::resembles() const {
  return is_exact || family == ChatFamily::kUnknown ? "" : chat_family_name(family);
}

Status chat_check(std::span<const weir_chat_message> messages, uint32_t flags) {
  WEIR_TRY(check_messages(messages));
  return check_flags(messages, flags);
}

Status chat_render(const ChatTemplate& chat_template, std::span<const weir_chat_message> messages, uint32_t flags,
                   std::string_view bos, std::string_view eos, RenderedChat& out) {
  WEIR_TRY(check_template(chat_template, flags));
  WEIR_TRY(chat_check(messages, flags));
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string_view role = messages[i].role;
    if (role == "tool" || role == "developer")
      return fail(WEIR_ERR_INVALID_ARG, "messages[%zu]: the role \"%s\" is none of its template", i, messages[i].role);
  }
  RenderedChat rendered(out.text.get_allocator().resource());
  const Chat chat = {messages, (flags & WEIR_CHAT_CONTINUE) != 0, (flags & WEIR_CHAT_ADD_ASSISTANT) != 0,
                     bos,      eos.empty() ? "</s>" : eos,        rendered};
  WEIR_TRY(chat_families()[static_cast<size_t>(chat_template.family) - kFirstFamily].render(chat));
  out.text.swap(rendered.text);
  out.said.swap(rendered.said);
  return {};
}

}  // namespace weir
