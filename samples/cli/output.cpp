// Standard output; see output.h.
#include "output.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace weir_cli {
namespace {

// Of the first write that failed: later ones may fail for another reason, or not at all.
int g_error = 0;

void failed(int error) {
  if (g_error == 0) g_error = error;
  throw OutputError(g_error);
}

}  // namespace

OutputError::OutputError(int error)
    : text_(std::string("standard output: ") + (error != 0 ? std::strerror(error) : "it could not be written")) {}

void put(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) failed(errno);
}

void put_line(std::string_view text) {
  put(text);
  put("\n");
}

void put_format(const char* form, ...) {
  va_list arguments;
  va_start(arguments, form);
  errno = 0;
  const int n = std::vprintf(form, arguments);
  const int error = errno;
  va_end(arguments);
  if (n < 0) failed(error);
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) failed(errno);
}

}  // namespace weir_cli
