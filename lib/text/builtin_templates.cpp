// Chat templates that are built in.
#include "text/builtin_templates.h"

#include <utility>

namespace weir {

std::string_view builtin_template(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kTemplates[] = {
#define WEIR_BUILTIN_TEMPLATE(name, text) {name, text},
#include "text/builtin_templates.inc"
#undef WEIR_BUILTIN_TEMPLATE
  };
  for (const auto& [known, text] : kTemplates) {
    if (known == name) return text;
  }
  return {};
}

}  // namespace weir
