// Fuzzes lib/text/chat_jinja: rendering any messages with any template and with the built-in ones, and turning them
// into tokens, none of which is a mark that a message wrote. Input: byte 0 flags, byte 1 the built-in template besides
// the given one, then the template, then role and content of each message; all texts end with a NUL byte. A role of one
// byte is the first letter of a real one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/chat_message.h"
#include "tests/text/text_test.h"
#include "text/builtin_templates.h"
#include "text/chat_jinja.h"

using namespace weir;
using namespace weir_test;

namespace {

constexpr size_t kMaxMessages = 64;

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

// A vocabulary that knows the marks of many templates.
const Opened& vocabulary() {
  static Opened* opened = nullptr;
  if (opened == nullptr) {
    VocabParts parts = byte_level_parts();
    for (const char* mark : {"<s>", "</s>", "<|im_start|>", "<|eot_id|>", "[INST]", "[/INST]", "<｜User｜>", "<|end|>"})
      parts.add(mark, 3);
    for (const char* mark : {"<think>", "</think>", "<start_of_turn>", "\n\n", "<|user|>"}) parts.add(mark, 4);
    opened = new Opened(parts.file());
    require(opened->status().ok(), "the vocabulary opens");
  }
  return *opened;
}

void check_tokens(const RenderedChat& chat) {
  const Opened& vocab = vocabulary();
  std::pmr::vector<weir_token> ids;
  require(vocab->encode_chat(chat.text, chat.said, ids).ok(), "any conversation has tokens");
  std::string back;
  size_t i = 0;  // in chat.said
  for (const weir_token id : ids) {
    weir_token_info info = WEIR_TOKEN_INFO_INIT;
    vocab->token_info(id, info);
    const std::string_view piece = vocab->decode(id, true, false);
    const size_t end = back.size() + piece.size();
    while (i < chat.said.size() && chat.said[i].end <= back.size()) ++i;
    const bool is_said = i < chat.said.size() && chat.said[i].begin < end;
    const bool is_mark = (info.flags & WEIR_TOKEN_CONTROL) != 0 || piece.find('<') == 0;
    require(!is_said || !is_mark || piece.size() == 1, "no mark is text of a message");
    back += piece;
  }
  require(back == std::string_view(chat.text), "the tokens stand for the text");
}

void run(std::string_view source, const std::vector<weir_chat_message>& messages, uint32_t flags) {
  ChatRequest request;
  request.messages = messages;
  request.flags = flags;
  request.template_text = source;
  request.bos = "<s>";
  request.eos = "</s>";
  RenderedChat out(std::pmr::get_default_resource()), again(std::pmr::get_default_resource());
  out.text = "before";
  const Status status = chat_render_jinja(request, out);
  if (!status.ok()) {
    require(status.code() == WEIR_ERR_INVALID_ARG || status.code() == WEIR_ERR_UNSUPPORTED ||
                status.code() == WEIR_ERR_FORMAT,
            "a refusal says what is wrong");
    require(out.text == "before" && out.said.empty(), "a refusal changes nothing");
    return;
  }
  size_t end = 0;
  for (const TextRange& range : out.said) {
    require(range.begin >= end && range.end > range.begin && range.end <= out.text.size(), "stretches are in order");
    end = range.end;
  }
  require(chat_render_jinja(request, again).ok() && out.text == again.text, "a second rendering is the same");
  check_tokens(out);
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
    messages.push_back(weir_test::chat_message(texts[i].c_str(), texts[i + 1]));
  run(template_text, messages, data[0] & 15u);
  constexpr const char* kNames[] = {"chatml", "llama3", "mistral", "gemma", "granite", "glm4", "harmony"};
  run(builtin_template(kNames[data[1] % std::size(kNames)]), messages, data[0] & 15u);
  return 0;
}
