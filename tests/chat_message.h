// For tests of conversations: a message with nothing but a text.
#pragma once

#include <string_view>

#include "weir/text.h"

namespace weir_test {

constexpr weir_chat_message chat_message(const char* role, std::string_view content) {
  weir_chat_message message = WEIR_CHAT_MESSAGE_INIT;
  message.role = role;
  message.content = content.data();
  message.content_bytes = content.size();
  return message;
}

}  // namespace weir_test
