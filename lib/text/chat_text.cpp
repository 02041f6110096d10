// Cutting texts as chat templates do.
#include "text/chat_text.h"

#include "core/utf8.h"

namespace weir {
namespace {

using std::string_view;

// As Python's str.isspace has it, because templates trim with Python's rules.
bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

// Bytes of the space that `text` begins with, 0 when it does not.
size_t space_at_front(string_view text) {
  if (text.empty()) return 0;
  const Utf8Step step = utf8_step(text);
  return step.kind == Utf8Kind::kComplete && is_space(utf8_code_point(text, step.n_bytes)) ? step.n_bytes : 0;
}

size_t space_at_back(string_view text) {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    if (space_at_front(text.substr(text.size() - n)) == n) return n;
  }
  return 0;
}

}  // namespace

string_view trim_end(string_view text) {
  for (size_t n = space_at_back(text); n > 0; n = space_at_back(text)) text.remove_suffix(n);
  return text;
}

string_view trim(string_view text) {
  for (size_t n = space_at_front(text); n > 0; n = space_at_front(text)) text.remove_prefix(n);
  return trim_end(text);
}

string_view trim_front(string_view text, char c) {
  while (!text.empty() && text.front() == c) text.remove_prefix(1);
  return text;
}

string_view trim_back(string_view text, char c) {
  while (!text.empty() && text.back() == c) text.remove_suffix(1);
  return text;
}

string_view after_thoughts(string_view text) {
  const size_t at = text.rfind(kThinkEnd);
  return at == string_view::npos ? text : text.substr(at + kThinkEnd.size());
}

string_view thoughts(string_view text) {
  const size_t end = text.find(kThinkEnd);
  if (end == string_view::npos) return {};
  string_view inside = trim_back(text.substr(0, end), '\n');
  const size_t begin = inside.rfind(kThinkBegin);
  if (begin != string_view::npos) inside.remove_prefix(begin + kThinkBegin.size());
  return trim_front(inside, '\n');
}

}  // namespace weir
