// What the shims of text, conversations and prompts share.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "api/handles.h"
#include "text/chat_template.h"

namespace weir::api {

inline weir_status too_small(const char* what, uint64_t needed, uint64_t capacity) {
  return fail(WEIR_ERR_BUFFER_TOO_SMALL, "%llu %s are needed, the buffer holds %llu",
              static_cast<unsigned long long>(needed), what, static_cast<unsigned long long>(capacity))
      .code();
}

inline Status check_text(const weir_model* model) {
  if (model->model.has_text()) return {};
  return fail(WEIR_ERR_STATE, "the model was opened with WEIR_MODEL_DESCRIBE_ONLY, without its vocabulary");
}

using ChatMessages = std::pmr::vector<weir_chat_message>;

// The caller's messages and options, checked (chat.cpp). `options` may be null.
Status read_chat(const char* function, const weir_chat_message* messages, uint64_t n_messages,
                 const weir_chat_options* options, weir_chat_options& read, ChatMessages& list);
// Appends the conversation's tokens. `rendered` is what they stand for.
Status encode_chat(const weir_model* model, std::span<const weir_chat_message> messages,
                   const weir_chat_options& options, RenderedChat& rendered, std::pmr::vector<weir_token>& ids);

}  // namespace weir::api
