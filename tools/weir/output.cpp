// Standard output; see output.h.
#include "output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace weir_cli {
namespace {

// The error of the first write that failed: later ones may fail for another reason, or not at all.
int g_error = 0;

void failed(int error) {
  if (g_error == 0) g_error = error;
  throw OutputError(g_error);
}

struct Character {
  uint32_t code = 0;
  size_t n_bytes = 1;
  bool is_whole = false;  // well-formed UTF-8 (RFC 3629)
};

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {};
  uint32_t code = lead & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if (i >= text.size() || (byte(i) & 0xc0) != 0x80) return {0, i, false};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  const bool is_allowed = code >= (n == 2   ? 0x80u
                                   : n == 3 ? 0x800u
                                            : 0x10000u) &&
                          code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return is_allowed ? Character{code, n, true} : Character{};
}

bool steers_a_terminal(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

// What stays as it is, and how the rest is written.
struct Escaping {
  bool keeps_lines;
  bool is_json;
};

std::string escaped(std::string_view text, Escaping how) {
  std::string out;
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::string_view bytes = text.substr(0, c.n_bytes);
    char escape[8] = "";
    if (!c.is_whole) {
      out += "\xef\xbf\xbd";
    } else if (steers_a_terminal(c.code) && !(how.keeps_lines && (c.code == '\n' || c.code == '\t'))) {
      std::snprintf(escape, sizeof(escape), c.code < 0x80 && !how.is_json ? "\\x%02x" : "\\u%04x", c.code);
      out += escape;
    } else {
      out += bytes;
    }
    text.remove_prefix(c.n_bytes);
  }
  return out;
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

std::string plain_line(std::string_view text) { return escaped(text, {false, false}); }
std::string plain_text(std::string_view text) { return escaped(text, {true, false}); }
std::string plain_json(std::string_view json) { return escaped(json, {true, true}); }

void put_answer(std::string_view text) {
  static const bool on_terminal = isatty(STDOUT_FILENO) != 0;
  if (on_terminal)
    put(plain_text(text));
  else
    put(text);
}

void tell(std::string_view message) { std::fprintf(stderr, "weir: %s\n", plain_line(message).c_str()); }

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) failed(errno);
}

}  // namespace weir_cli
