// Reading a caller's chat messages. Their struct has no struct_size of its own, so the array tells how far apart they
// lie, and the struct may still grow: a later version's may have fields behind those of 1.0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <vector>

#include "api/handles.h"

namespace weir::api {

// sizeof(weir_chat_message) in version 1.0. Callers that give no distance have messages of this size for ever, whatever
// the struct grows to here.
inline constexpr uint32_t kFirstMessageBytes = 24;
static_assert(offsetof(weir_chat_message, content_bytes) + sizeof(weir_chat_message::content_bytes) ==
                  kFirstMessageBytes,
              "fields are appended behind those of 1.0");

// The same in version 1.1, which brought weir_session_prompt: its callers without chat options cannot say, and those
// whose options are of 1.1 may leave it to these. Not sizeof: where the struct has grown, theirs has not.
inline constexpr uint32_t kPromptMessageBytes = 64;
static_assert(offsetof(weir_chat_message, name) + sizeof(weir_chat_message::name) == kPromptMessageBytes,
              "fields are appended behind those of 1.1");
inline constexpr uint32_t kPromptOptionsBytes = 64;  // sizeof(weir_chat_options) in 1.1
static_assert(offsetof(weir_chat_options, unix_time) + sizeof(weir_chat_options::unix_time) == kPromptOptionsBytes,
              "fields are appended behind those of 1.1");

// How far apart the messages of a caller are whose options, perhaps NULL, have message_bytes 0. A version in which the
// struct grows appends a field to these options, too, and to weir_prompt_options, so that their struct_size tells.
inline uint32_t unsaid_message_bytes(const weir_chat_options* options) {
  return options != nullptr && options->struct_size >= kPromptOptionsBytes ? kPromptMessageBytes : kFirstMessageBytes;
}

// Copies messages that lie `stride` bytes apart. Fields that an older caller's messages lack are 0. A newer caller's
// messages have fields that this version does not know; they must be 0, as those of option structs. Message is
// weir_chat_message, but for tests.
template <class Message>
Status read_messages(const void* messages, uint64_t n_messages, uint32_t stride, std::pmr::vector<Message>& out) {
  constexpr uint32_t kKnown = sizeof(Message);
  if (stride < kFirstMessageBytes || stride > kMaxStructSize || stride % alignof(Message) != 0) {
    return fail(WEIR_ERR_INVALID_ARG, "weir_chat_options: message_bytes is %u; set it to sizeof(weir_chat_message)",
                stride);
  }
  out.assign(n_messages, Message{});
  const auto* at = static_cast<const unsigned char*>(messages);
  for (uint64_t i = 0; i < n_messages; ++i, at += stride) {
    std::memcpy(&out[i], at, std::min(stride, kKnown));
    for (uint32_t byte = kKnown; byte < stride; ++byte) {
      if (at[byte] != 0) {
        return fail(WEIR_ERR_UNSUPPORTED, "messages[%llu]: byte %u of %u is set, but this version knows only %u bytes",
                    static_cast<unsigned long long>(i), byte, stride, kKnown);
      }
    }
  }
  return {};
}

}  // namespace weir::api
