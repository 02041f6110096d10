// Chat templates that are built in, for files that have none: chatml, llama3, mistral, gemma, granite, glm4, harmony.
#pragma once

#include <string_view>

namespace weir {

// The template's text; "" when there is none of this name.
std::string_view builtin_template(std::string_view name);

// The text that is meant by a caller: the built-in one of this name, or what is given itself.
inline std::string_view template_or_builtin(std::string_view text_or_name) {
  const std::string_view found = builtin_template(text_or_name);
  return found.empty() ? text_or_name : found;
}

}  // namespace weir
