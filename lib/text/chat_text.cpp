// Cutting texts as chat templates do.
#include "text/chat_text.h"

#include "core/utf8.h"
#include "text/characters.h"

namespace weir {
namespace {

using std::string_view;

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

string_view after_thoughts(string_view text) {
  const size_t at = text.rfind(kThinkEnd);
  return at == string_view::npos ? text : text.substr(at + kThinkEnd.size());
}

}  // namespace weir
