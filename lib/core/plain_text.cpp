// Escaping control characters, replacing ill-formed UTF-8.
#include "core/plain_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "core/c_format.h"
#include "core/utf8.h"

namespace weir {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
}

}  // namespace

size_t plain_text(std::string_view text, char* out, size_t capacity) {
  if (capacity == 0) return 0;
  size_t n = 0;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    std::string_view shown = text.substr(0, step.n_bytes);
    char escape[8];
    if (step.kind != Utf8Kind::kComplete) {
      shown = kReplacement;
    } else if (const uint32_t code = utf8_code_point(text, step.n_bytes); is_control(code)) {
      const int length = std::snprintf(escape, sizeof(escape), code < 0x80 ? "\\x%02x" : "\\u%04x", code);
      shown = std::string_view(escape, static_cast<size_t>(length));
    }
    if (n + shown.size() >= capacity) break;
    n += shown.copy(out + n, shown.size());
    text.remove_prefix(step.n_bytes);
  }
  out[n] = '\0';
  return n;
}

size_t plain_format(char* out, size_t capacity, const char* format, va_list args) {
  char raw[1024];
  const int n = c_vformat(raw, sizeof(raw), format, args);
  std::string_view text(raw, n < 0 ? 0 : std::min(static_cast<size_t>(n), sizeof(raw) - 1));
  // A character that the end of `raw` cut in two is left out; one that was incomplete before is replaced.
  if (n >= static_cast<int>(sizeof(raw))) {
    for (size_t left = 1; left < 4 && left <= text.size(); ++left) {
      const std::string_view tail = text.substr(text.size() - left);
      if (utf8_step(tail).kind == Utf8Kind::kIncomplete && utf8_step(tail).n_bytes == left) {
        text.remove_suffix(left);
        break;
      }
    }
  }
  return plain_text(text, out, capacity);
}

}  // namespace weir
