// What comes in on standard input.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

namespace weir_cli {

// All of it. Throws std::runtime_error when it cannot be read.
inline std::string read_stdin() {
  std::string text;
  char chunk[65536];
  for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), stdin)) > 0;) text.append(chunk, n);
  if (std::ferror(stdin) != 0) throw std::runtime_error("cannot read standard input");
  return text;
}

}  // namespace weir_cli
