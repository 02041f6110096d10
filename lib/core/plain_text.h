// Text of files and callers made fit to be shown: one line of valid UTF-8 that can do nothing to a terminal. Error
// texts and log lines pass through here as a whole, so that whoever formats one may put any bytes into it.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <string_view>

namespace weir {

// Writes `text` to `out`, NUL-terminated, and returns its length. Control characters (C0, DEL, C1, and the line and
// paragraph separators) become \x1b or \u2028, ill-formed UTF-8 becomes U+FFFD, one for each maximal subpart. What does
// not fit into capacity - 1 bytes is cut off, between characters and not inside such an escape. Applied to its own
// output it changes nothing.
size_t plain_text(std::string_view text, char* out, size_t capacity);

// The same for the first 1023 bytes of what printf would print; the arguments may point into `out`.
size_t plain_format(char* out, size_t capacity, const char* format, va_list args) __attribute__((format(printf, 3, 0)));

}  // namespace weir
