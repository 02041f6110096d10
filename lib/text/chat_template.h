// What all renderings of conversations share; chat_jinja.h renders them.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "text/tokenizer.h"
#include "weir/text.h"

namespace weir {

// A rendered conversation: all of its text, and which stretches of it are text of messages.
struct RenderedChat {
  explicit RenderedChat(std::pmr::memory_resource* memory) : text(memory), said(memory) {}

  std::pmr::string text;
  std::pmr::vector<TextRange> said;  // ascending, none empty
};

// What any rendering wants of its arguments: flags that are known, roles, contents.
Status chat_check(std::span<const weir_chat_message> messages, uint32_t flags);

}  // namespace weir
