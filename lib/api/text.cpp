// Text in and out.
#include "weir/text.h"

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "api/handles.h"
#include "api/text.h"

using namespace weir;

namespace {

weir_status bad_flags(const char* function, uint32_t flags) {
  return fail(WEIR_ERR_INVALID_ARG, "%s: flags 0x%x are not known", function, flags).code();
}

Status check_token(const weir_model* model, weir_token token) {
  WEIR_TRY(api::check_text(model));
  const uint32_t n = model->model.tokenizer().vocab_size();
  if (token < 0 || static_cast<uint32_t>(token) >= n)
    return fail(WEIR_ERR_INVALID_ARG, "token %d is not in 0..%u", token, n - 1);
  return {};
}

weir_status tokenize(const char* function, const weir_model* model, const char* text, uint64_t text_bytes,
                     const weir_tokenize_options& options, weir_token* tokens, uint64_t capacity, uint64_t* n_tokens) {
  const auto invalid = [&](const char* what) { return fail(WEIR_ERR_INVALID_ARG, "%s: %s", function, what).code(); };
  if (model == nullptr) return invalid("model is NULL");
  if (n_tokens == nullptr) return invalid("n_tokens is NULL");
  if (text == nullptr && text_bytes != 0) return invalid("text is NULL");
  if (tokens == nullptr && capacity != 0) return invalid("tokens is NULL, capacity is not 0");
  if ((options.flags & ~static_cast<uint32_t>(WEIR_TOKENIZE_SPECIAL | WEIR_TOKENIZE_BOS_EOS)) != 0)
    return bad_flags(function, options.flags);
  if (text_bytes > INT32_MAX)
    return fail(WEIR_ERR_INVALID_ARG, "%s: a text of %llu bytes is too long", function,
                static_cast<unsigned long long>(text_bytes))
        .code();
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_text(model));
    std::pmr::vector<weir_token> ids(&model->runtime->memory);
    const OpenProgress progress(options.progress, options.progress_user, "tokenizing");
    WEIR_TRY(model->model.tokenizer().encode({text, text_bytes}, options.flags, ids, progress));
    *n_tokens = ids.size();
    if (ids.size() > capacity) return Status(api::too_small("tokens", ids.size(), capacity));
    std::copy(ids.begin(), ids.end(), tokens);
    return {};
  });
}

}  // namespace

weir_status weir_tokenize(const weir_model* model, const char* text, uint64_t text_bytes, uint32_t flags,
                          weir_token* tokens, uint64_t capacity, uint64_t* n_tokens) {
  weir_tokenize_options options = WEIR_TOKENIZE_OPTIONS_INIT;
  options.flags = flags;
  return tokenize("weir_tokenize", model, text, text_bytes, options, tokens, capacity, n_tokens);
}

weir_status weir_tokenize_options_init(weir_tokenize_options* options, uint32_t struct_size) {
  WEIR_API_REQUIRE(options);
  if (struct_size < 8)
    return fail(WEIR_ERR_INVALID_ARG, "weir_tokenize_options_init: struct_size is %u", struct_size).code();
  std::memset(options, 0, struct_size);
  options->struct_size = struct_size;
  return WEIR_OK;
}

weir_status weir_tokenize_with(const weir_model* model, const char* text, uint64_t text_bytes,
                               const weir_tokenize_options* options, weir_token* tokens, uint64_t capacity,
                               uint64_t* n_tokens) {
  weir_tokenize_options read;
  const weir_status status = api::guard([&] { return api::read_struct(options, "weir_tokenize_options", read); });
  if (status != WEIR_OK) return status;
  return tokenize("weir_tokenize_with", model, text, text_bytes, read, tokens, capacity, n_tokens);
}

weir_status weir_detokenize(const weir_model* model, const weir_token* tokens, uint64_t n_tokens, uint32_t flags,
                            char* text, uint64_t capacity, uint64_t* text_bytes) {
  WEIR_API_REQUIRE(model);
  WEIR_API_REQUIRE(text_bytes);
  if (tokens == nullptr && n_tokens != 0) return fail(WEIR_ERR_INVALID_ARG, "weir_detokenize: tokens is NULL").code();
  if (text == nullptr && capacity != 0)
    return fail(WEIR_ERR_INVALID_ARG, "weir_detokenize: text is NULL, capacity is not 0").code();
  if ((flags & ~static_cast<uint32_t>(WEIR_DETOKENIZE_SPECIAL)) != 0) return bad_flags("weir_detokenize", flags);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_text(model));
    for (uint64_t i = 0; i < n_tokens; ++i) WEIR_TRY(check_token(model, tokens[i]));
    const Tokenizer& tokenizer = model->model.tokenizer();
    uint64_t total = 0;
    for (uint64_t i = 0; i < n_tokens; ++i) {
      const std::string_view piece = tokenizer.decode(tokens[i], (flags & WEIR_DETOKENIZE_SPECIAL) != 0,
                                                      i == 0 || tokenizer.starts_text_after(tokens[i - 1]));
      if (total + piece.size() <= capacity) std::copy(piece.begin(), piece.end(), text + total);
      total += piece.size();
    }
    *text_bytes = total;
    return total > capacity ? Status(api::too_small("bytes", total, capacity)) : Status();
  });
}

weir_status weir_detokenizer_create(weir_model* model, uint32_t flags, weir_detokenizer** out) {
  WEIR_API_REQUIRE(out);
  *out = nullptr;
  WEIR_API_REQUIRE(model);
  if ((flags & ~static_cast<uint32_t>(WEIR_DETOKENIZE_SPECIAL)) != 0)
    return bad_flags("weir_detokenizer_create", flags);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_text(model));
    auto* handle = make_in<weir_detokenizer>(model->runtime->memory, model);
    handle->text.reset(&model->model.tokenizer(), (flags & WEIR_DETOKENIZE_SPECIAL) != 0);
    api::retain(model);
    *out = handle;
    return {};
  });
}

weir_status weir_detokenizer_push(weir_detokenizer* detokenizer, weir_token token, const char** text,
                                  uint64_t* text_bytes) {
  WEIR_API_REQUIRE(detokenizer);
  WEIR_API_REQUIRE(text);
  WEIR_API_REQUIRE(text_bytes);
  return api::guard([&]() -> Status {
    WEIR_TRY(check_token(detokenizer->model, token));
    const std::string_view piece = detokenizer->text.push(token);
    *text = piece.data();
    *text_bytes = piece.size();
    return {};
  });
}

weir_status weir_detokenizer_flush(weir_detokenizer* detokenizer, const char** text, uint64_t* text_bytes) {
  WEIR_API_REQUIRE(detokenizer);
  WEIR_API_REQUIRE(text);
  WEIR_API_REQUIRE(text_bytes);
  const std::string_view piece = detokenizer->text.flush();
  *text = piece.data();
  *text_bytes = piece.size();
  return WEIR_OK;
}

void weir_detokenizer_destroy(weir_detokenizer* detokenizer) {
  if (detokenizer == nullptr) return;
  const Call call;
  weir_model* model = detokenizer->model;
  destroy_in(model->runtime->memory, detokenizer);
  api::release(model);
}

weir_status weir_token_get_info(const weir_model* model, weir_token token, weir_token_info* info) {
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(info, "weir_token_info"));
    WEIR_TRY(check_token(model, token));
    weir_token_info value = WEIR_TOKEN_INFO_INIT;
    model->model.tokenizer().token_info(token, value);
    api::write_struct(value, info);
    return {};
  });
}

weir_status weir_model_special_tokens(const weir_model* model, weir_special_tokens* special) {
  WEIR_API_REQUIRE(model);
  return api::guard([&]() -> Status {
    WEIR_TRY(api::check_out_struct(special, "weir_special_tokens"));
    WEIR_TRY(api::check_text(model));
    api::write_struct(model->model.tokenizer().special(), special);
    return {};
  });
}
