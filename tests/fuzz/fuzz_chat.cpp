// Fuzzes lib/text/chat_template: recognising any text, and rendering any messages with every family. Input: byte 0
// flags, byte 1 the family besides the recognised one, then the template, then role and content of each message; all
// texts end with a NUL byte. A role of one byte is the first letter of a real one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

using namespace weir;

namespace {

constexpr size_t kMaxMessages = 64;
constexpr size_t kMaxTurnBytes = 200;  // more than any family adds to a message, and to a conversation

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

std::string take(std::string_view& left) {
  const size_t end = left.find('\0');
  const std::string out(left.substr(0, end));
  left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
  return out;
}

std::string full_role(const std::string& role) {
  if (role == "s") return "system";
  if (role == "u") return "user";
  return role == "a" ? "assistant" : role;
}

void run(ChatFamily family, const std::vector<weir_chat_message>& messages, uint32_t flags) {
  std::pmr::string out = "before", again;
  const Status status = chat_render(family, messages, flags, "<s>", "</s>", out);
  require(chat_family_name(family) != nullptr, "every family has a name");
  if (!status.ok()) {
    require(status.code() == WEIR_ERR_INVALID_ARG || status.code() == WEIR_ERR_UNSUPPORTED,
            "a refusal says what the argument is");
    require(out == "before", "a refusal changes nothing");
    return;
  }
  size_t n_bytes = 2 * kMaxTurnBytes;
  for (const weir_chat_message& message : messages) n_bytes += kMaxTurnBytes + message.content_bytes;
  require(out.substr(0, 6) == "before" && out.size() <= n_bytes,
          "a rendering is appended and not much longer than the messages");
  require(chat_render(family, messages, flags, "<s>", "</s>", again).ok() && out.substr(6) == again,
          "a second rendering is the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string_view left(reinterpret_cast<const char*>(data + 2), size - 2);
  const std::string template_text = take(left);
  std::vector<std::string> texts;
  while (!left.empty() && texts.size() < 2 * kMaxMessages) {
    texts.push_back(full_role(take(left)));
    texts.push_back(take(left));
  }
  std::vector<weir_chat_message> messages;
  for (size_t i = 0; i + 1 < texts.size(); i += 2)
    messages.push_back({texts[i].c_str(), texts[i + 1].data(), texts[i + 1].size()});
  run(chat_family_of(template_text), messages, data[0] & 7u);
  run(static_cast<ChatFamily>(data[1] % (static_cast<uint32_t>(ChatFamily::kUnknown) + 1)), messages, data[0] & 7u);
  return 0;
}
