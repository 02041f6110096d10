// The calling thread's locale is "C" while it formats.
#include "core/c_format.h"

#include <clocale>
#include <cstdio>

namespace weir {

int c_vformat(char* out, size_t capacity, const char* format, va_list args) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);  // the system's own; never freed
  const locale_t before = c_locale == nullptr ? nullptr : uselocale(c_locale);
  const int n = std::vsnprintf(out, capacity, format, args);
  if (before != nullptr) uselocale(before);
  return n;
}

int c_format(char* out, size_t capacity, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int n = c_vformat(out, capacity, format, args);
  va_end(args);
  return n;
}

}  // namespace weir
