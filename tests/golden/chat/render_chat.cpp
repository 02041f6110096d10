// Renders conversations for known_templates.py: what the family that a template resembles makes of them. Requests come
// on stdin, answers go to stdout, both in little-endian binary; no test, and built only when it is asked for.
//
//   request  u32 n, n bytes of the template; u32 number of conversations; for each: u32 WEIR_CHAT_* flags, u32 number
//            of messages; for each: u32 n, n bytes of the role, u32 n, n bytes of the content
//   answer   u32 n, n bytes: the name of the family in chat_families.inc, or nothing; for each conversation: i32
//            status, u32 n, n bytes of the rendering or of the error
#include <cstdio>
#include <memory_resource>
#include <string>
#include <vector>

#include "tests/chat_message.h"
#include "text/chat_template.h"

using namespace weir;

namespace {

constexpr const char* kNames[] = {
    "",
#define WEIR_CHAT_FAMILY(Name, text) #Name,
#include "text/chat_families.inc"
#undef WEIR_CHAT_FAMILY
    "",
};

bool read_u32(uint32_t& out) { return std::fread(&out, sizeof(out), 1, stdin) == 1; }

std::string read_text() {
  uint32_t n = 0;
  if (!read_u32(n)) return {};
  std::string text(n, '\0');
  text.resize(std::fread(text.data(), 1, n, stdin));
  return text;
}

void write_text(std::string_view text) {
  const auto n = static_cast<uint32_t>(text.size());
  std::fwrite(&n, sizeof(n), 1, stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void answer_conversation(const ChatTemplate& chat_template) {
  uint32_t flags = 0, n_messages = 0;
  read_u32(flags);
  read_u32(n_messages);
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < 2 * n_messages; ++i) texts.push_back(read_text());
  std::vector<weir_chat_message> messages;
  for (size_t i = 0; i < texts.size(); i += 2)
    messages.push_back(weir_test::chat_message(texts[i].c_str(), texts[i + 1]));
  RenderedChat rendered(std::pmr::get_default_resource());
  const Status status =
      chat_render(chat_template, messages, flags | WEIR_CHAT_ACCEPT_RESEMBLING, "<bos!>", "<eos!>", rendered);
  const int32_t code = status.code();
  std::fwrite(&code, sizeof(code), 1, stdout);
  write_text(status.ok() ? std::string_view(rendered.text) : std::string_view(last_error_text()));
}

}  // namespace

int main() {
  for (uint32_t n = 0; read_u32(n);) {
    std::string text(n, '\0');
    text.resize(std::fread(text.data(), 1, n, stdin));
    const ChatTemplate chat_template = chat_template_of(text);
    write_text(kNames[static_cast<size_t>(chat_template.family)]);
    uint32_t n_conversations = 0;
    read_u32(n_conversations);
    for (uint32_t i = 0; i < n_conversations; ++i) answer_conversation(chat_template);
    std::fflush(stdout);
  }
  return 0;
}
