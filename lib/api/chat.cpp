// Conversations as text and as tokens.
#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "api/chat_messages.h"
#include "api/handles.h"
#include "api/text.h"
#include "core/clock.h"
#include "text/builtin_templates.h"
#include "text/chat_jinja.h"
#include "text/jinja/jinja.h"
#include "text/json_values.h"
#include "weir/text.h"

using namespace weir;

namespace {

Status check_messages(const char* function, const weir_chat_message* messages, uint64_t n_messages) {
  if (messages == nullptr && n_messages != 0) return fail(WEIR_ERR_INVALID_ARG, "%s: messages is NULL", function);
  if (n_messages > UINT16_MAX)
    return fail(WEIR_ERR_INVALID_ARG, "%s: %llu messages are too many", function,
                static_cast<unsigned long long>(n_messages));
  return {};
}

std::string_view text_of(const Tokenizer& tokenizer, weir_token token) {
  if (token < 0) return {};
  weir_token_info info = WEIR_TOKEN_INFO_INIT;
  tokenizer.token_info(token, info);
  return {info.text, info.text_bytes};
}

Status render(const weir_model* model, std::span<const weir_chat_message> messages, const weir_chat_options& options,
              RenderedChat& out) {
  WEIR_TRY(api::check_text(model));
  const Tokenizer& tokenizer = model->model.tokenizer();
  const weir_special_tokens special = tokenizer.special();
  ChatRequest request;
  request.messages = messages;
  request.flags = options.flags;
  request.bos = text_of(tokenizer, special.bos);
  request.eos = text_of(tokenizer, special.eos);
  request.tools_json = options.tools_json;
  request.variables_json = options.variables_json;
  request.unix_time = options.unix_time != 0 ? options.unix_time : unix_seconds();
  if (options.template_text != nullptr) {
    request.template_text = template_or_builtin(options.template_text);
    return chat_render_jinja(request, out);
  }
  WEIR_TRY(model->model.file().get_string("tokenizer.chat_template", request.template_text, ""));
  if (request.template_text.empty())
    return fail(WEIR_ERR_UNSUPPORTED,
                "the model's file has no chat template (tokenizer.chat_template); give one in template_text");
  return chat_render_jinja(request, out);
}

constexpr uint32_t kCanThink = uint32_t{WEIR_CHAT_CAN_THOUGHTS} | uint32_t{WEIR_CHAT_CAN_SKIP_THOUGHTS};

// What the template of the file can do.
Status find_abilities(const weir_model* model, uint32_t& can) {
  HostMemory& memory = model->runtime->memory;
  std::string_view source;
  WEIR_TRY(model->model.file().get_string("tokenizer.chat_template", source, ""));
  const weir_chat_message messages[] = {{"system", "7c1e55a90b3f", 12, nullptr, 0, nullptr, nullptr, nullptr},
                                        {"user", "?", 1, nullptr, 0, nullptr, nullptr, nullptr}};
  weir_chat_options options = WEIR_CHAT_OPTIONS_INIT;
  options.unix_time = 1;
  RenderedChat rendered(&memory);
  if (render(model, messages, options, rendered).ok() &&
      rendered.text.find(messages[0].content) != std::string_view::npos)
    can |= WEIR_CHAT_CAN_SYSTEM;
  return source.empty() ? Status() : chat_abilities(source, &memory, can);
}

}  // namespace

weir_status weir_model_chat_info(const weir_model* model, weir_chat_info* info) {
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(info, "weir_chat_info"));
    WEIR_TRY(api::check_text(model));
    const AnswerFormat& format = model->model.answer_format();
    weir_chat_info value = WEIR_CHAT_INFO_INIT;
    WEIR_TRY(find_abilities(model, value.can));
    value.can = format.has_thoughts() ? value.can | WEIR_CHAT_CAN_THOUGHTS : value.can & ~kCanThink;
    value.thought_begin = format.thought_begin;
    value.thought_end = format.thought_end;
    value.tool_format = format.tool_format;
    api::write_struct(value, info);
    return {};
  });
}

Status api::read_chat(const char* function, const weir_chat_message* messages, uint64_t n_messages,
                      const weir_chat_options* options, weir_chat_options& read, ChatMessages& list) {
  WEIR_TRY(read_struct(options, "weir_chat_options", read));
  if (read.reserved != 0) return fail(WEIR_ERR_INVALID_ARG, "weir_chat_options: reserved is not 0");
  WEIR_TRY(check_messages(function, messages, n_messages));
  if (read.message_bytes == 0) read.message_bytes = unsaid_message_bytes(options);
  return read_messages(messages, n_messages, read.message_bytes, list);
}

Status api::encode_chat(const weir_model* model, std::span<const weir_chat_message> messages,
                        const weir_chat_options& options, RenderedChat& rendered, std::pmr::vector<weir_token>& ids) {
  WEIR_TRY(render(model, messages, options, rendered));
  if (rendered.text.size() > INT32_MAX)
    return fail(WEIR_ERR_INVALID_ARG, "a conversation of %zu bytes is too long", rendered.text.size());
  const OpenProgress progress(options.progress, options.progress_user, "tokenizing");
  return model->model.tokenizer().encode_chat(rendered.text, rendered.said, ids, progress);
}

weir_status weir_chat_options_init(weir_chat_options* options, uint32_t struct_size) {
  WEIR_API_REQUIRE(options);
  if (struct_size < 8)
    return fail(WEIR_ERR_INVALID_ARG, "weir_chat_options_init: struct_size is %u", struct_size).code();
  std::memset(options, 0, struct_size);
  options->struct_size = struct_size;
  return WEIR_OK;
}

weir_status weir_chat_render_with(const weir_model* model, const weir_chat_message* messages, uint64_t n_messages,
                                  const weir_chat_options* options, char* text, uint64_t capacity,
                                  uint64_t* text_bytes) {
  WEIR_API_REQUIRE(model);
  WEIR_API_REQUIRE(text_bytes);
  if (text == nullptr && capacity != 0)
    return fail(WEIR_ERR_INVALID_ARG, "weir_chat_render: text is NULL, capacity is not 0").code();
  return api::guard([&]() -> Status {
    std::pmr::memory_resource* memory = &model->runtime->memory;
    weir_chat_options read;
    api::ChatMessages list(memory);
    WEIR_TRY(api::read_chat("weir_chat_render", messages, n_messages, options, read, list));
    RenderedChat rendered(memory);
    WEIR_TRY(render(model, list, read, rendered));
    *text_bytes = rendered.text.size();
    if (rendered.text.size() > capacity) return Status(api::too_small("bytes", rendered.text.size(), capacity));
    std::copy(rendered.text.begin(), rendered.text.end(), text);
    return {};
  });
}

weir_status weir_chat_render(const weir_model* model, const weir_chat_message* messages, uint64_t n_messages,
                             uint32_t flags, char* text, uint64_t capacity, uint64_t* text_bytes) {
  weir_chat_options options = WEIR_CHAT_OPTIONS_INIT;
  options.flags = flags;
  options.message_bytes = api::kFirstMessageBytes;
  return weir_chat_render_with(model, messages, n_messages, &options, text, capacity, text_bytes);
}

weir_status weir_chat_tokenize(const weir_model* model, const weir_chat_message* messages, uint64_t n_messages,
                               const weir_chat_options* options, weir_token* tokens, uint64_t capacity,
                               uint64_t* n_tokens) {
  WEIR_API_REQUIRE(model);
  WEIR_API_REQUIRE(n_tokens);
  if (tokens == nullptr && capacity != 0)
    return fail(WEIR_ERR_INVALID_ARG, "weir_chat_tokenize: tokens is NULL, capacity is not 0").code();
  return api::guard([&]() -> Status {
    std::pmr::memory_resource* memory = &model->runtime->memory;
    weir_chat_options read;
    api::ChatMessages list(memory);
    WEIR_TRY(api::read_chat("weir_chat_tokenize", messages, n_messages, options, read, list));
    RenderedChat rendered(memory);
    std::pmr::vector<weir_token> ids(memory);
    WEIR_TRY(api::encode_chat(model, list, read, rendered, ids));
    *n_tokens = ids.size();
    if (ids.size() > capacity) return Status(api::too_small("tokens", ids.size(), capacity));
    std::copy(ids.begin(), ids.end(), tokens);
    return {};
  });
}

weir_status weir_template_render(weir_runtime* runtime, const char* template_text, uint64_t template_bytes,
                                 const char* variables_json, uint64_t variables_bytes, int64_t unix_time, char* text,
                                 uint64_t capacity, uint64_t* text_bytes) {
  WEIR_API_REQUIRE(runtime);
  WEIR_API_REQUIRE(template_text);
  WEIR_API_REQUIRE(variables_json);
  WEIR_API_REQUIRE(text_bytes);
  if (text == nullptr && capacity != 0)
    return fail(WEIR_ERR_INVALID_ARG, "weir_template_render: text is NULL, capacity is not 0").code();
  return api::guard([&]() -> Status {
    std::pmr::memory_resource* memory = &runtime->memory;
    jinja::Template parsed(memory);
    WEIR_TRY(parsed.parse(template_or_builtin({template_text, template_bytes})));
    jinja::Heap heap(memory);
    jinja::Value object;
    WEIR_TRY(jinja::read_json(heap, {variables_json, variables_bytes}, "variables", object));
    if (!object.is_dict()) return fail(WEIR_ERR_INVALID_ARG, "weir_template_render: the variables are no JSON object");
    std::pmr::vector<jinja::Variable> variables(memory);
    for (const auto& entry : object.dict().entries) variables.push_back({entry.key.view(), entry.value});
    jinja::RenderedText rendered(memory);
    WEIR_TRY(jinja::render(parsed, heap, variables, unix_time != 0 ? unix_time : unix_seconds(), rendered));
    *text_bytes = rendered.text.size();
    if (rendered.text.size() > capacity) return Status(api::too_small("bytes", rendered.text.size(), capacity));
    std::copy(rendered.text.begin(), rendered.text.end(), text);
    return {};
  });
}
