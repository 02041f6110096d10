// The calling thread's error text.
#include "core/status.h"

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace weir {
namespace {

constexpr size_t kErrorBytes = 1024;  // the limit that weir_last_error documents
thread_local char g_error_text[kErrorBytes];

// Cuts a trailing incomplete UTF-8 sequence, so that a truncated text stays valid.
void trim_utf8(char* text, size_t n) {
  size_t start = n;
  while (start > 0 && (static_cast<unsigned char>(text[start - 1]) & 0xC0u) == 0x80u) --start;
  if (start == 0) return;
  const auto lead = static_cast<unsigned char>(text[start - 1]);
  const size_t need = lead >= 0xF0u ? 4 : lead >= 0xE0u ? 3 : lead >= 0xC0u ? 2 : 1;
  if (need > n - (start - 1)) text[start - 1] = '\0';
}

}  // namespace

Status fail(weir_status code, const char* format, ...) {
  // Formatted aside first: an argument may point into the old text.
  char text[kErrorBytes];
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  size_t length = n < 0 ? 0 : static_cast<size_t>(n);
  text[n < 0 ? 0 : sizeof(text) - 1] = '\0';
  if (length >= sizeof(text)) {
    length = sizeof(text) - 1;
    trim_utf8(text, length);
  }
  for (size_t i = 0; i <= length; ++i) g_error_text[i] = text[i];
  return Status(code);
}

const char* last_error_text() { return g_error_text; }

}  // namespace weir
