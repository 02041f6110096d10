// Asks whoever sits at the terminal for a secret.
#pragma once

#include <string>

#include "terminal.h"

namespace weir_cli {

// Six digits, the first that are typed; `usual` where nothing is typed for `seconds`, or where nothing is typed and
// Enter pressed. Keys must come as they are (RawInput). Throws std::runtime_error where Ctrl-C or the end of the
// terminal comes instead.
std::string ask_secret(const std::string& usual, int seconds, const Style& style);

}  // namespace weir_cli
