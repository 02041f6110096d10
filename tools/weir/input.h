// Text that comes in. A byte order mark at its start is no part of it.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

namespace weir_cli {

inline constexpr char kByteOrderMark[] = "\xef\xbb\xbf";

inline void drop_byte_order_mark(std::string& text) {
  if (text.starts_with(kByteOrderMark)) text.erase(0, 3);
}

// All of standard input. Throws std::runtime_error when it cannot be read.
inline std::string read_stdin() {
  std::string text;
  char chunk[65536];
  for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), stdin)) > 0;) text.append(chunk, n);
  if (std::ferror(stdin) != 0) throw std::runtime_error("cannot read standard input");
  drop_byte_order_mark(text);
  return text;
}

}  // namespace weir_cli
