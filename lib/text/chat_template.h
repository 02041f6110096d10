// Chat rendering. A file's Jinja template is not run: its family is recognised by characteristic pieces, and each family is a small function.
// A template of no known family is an error that says so, never a guess.
#pragma once

#include <memory_resource>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "weir/text.h"

namespace weir {

enum class ChatFamily : uint8_t {
  kNone,
#define WEIR_CHAT_FAMILY(Name, text) k##Name,
#include "text/chat_families.inc"
#undef WEIR_CHAT_FAMILY
  kUnknown,
};

// Family of the template text ("" gives kNone).
ChatFamily chat_family_of(std::string_view template_text);
const char* chat_family_name(ChatFamily family);  // "chatml"; "" for kNone, "unknown" for kUnknown

// Appends the rendering to `out`. flags: WEIR_CHAT_*. `bos` and `eos` are the texts of these tokens ("" when there is none); a rendering that
// starts a conversation includes `bos` where the family's template does.
Status chat_render(ChatFamily family, std::span<const weir_chat_message> messages, uint32_t flags, std::string_view bos, std::string_view eos,
                   std::pmr::string& out);

}  // namespace weir
