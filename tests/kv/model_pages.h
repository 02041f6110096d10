// Pages of a model that has read a text, for measurements and tests of the page codec.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/handles.h"

namespace model_pages {

inline void check(weir_status status, const char* what) {
  if (status == WEIR_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, weir_last_error());
  std::exit(1);
}

// "x14 = x9 + x2 = 23 + 61 = 84."
inline std::string sums() {
  int value[400];
  std::string text;
  for (int i = 0; i < 400; ++i) {
    value[i] = i < 12 ? (i * 37 + 11) % 100 : (value[i - 5] + value[i - 12]) % 100;
    if (i < 12) continue;
    const auto number = [](int n) { return std::to_string(n); };
    text += "x" + number(i) + " = x" + number(i - 5) + " + x" + number(i - 12) + " = " + number(value[i - 5]) + " + " +
            number(value[i - 12]) + " = " + number(value[i]) + ".\n";
  }
  return text;
}

// The sealed pages of a session that has read the text, stream after stream. Ends the program on an error.
inline std::vector<std::byte> read(const char* model_path, const std::string& text, uint64_t max_tokens,
                                   uint32_t& page_bytes) {
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  check(weir_runtime_create(nullptr, &runtime), "runtime");
  check(weir_model_open(runtime, model_path, nullptr, &model), "model");
  std::vector<weir_token> tokens(text.size() + 8);
  uint64_t n = 0;
  check(weir_tokenize(model, text.data(), text.size(), 0, tokens.data(), tokens.size(), &n), "tokenize");
  n = std::min(n, max_tokens);
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.context_tokens = static_cast<uint32_t>(n + 1);
  check(weir_session_create(model, &options, &session), "session");
  check(weir_session_prefill(session, tokens.data(), n, nullptr, nullptr), "prefill");
  const weir::KvCache& kv = session->kv();
  page_bytes = static_cast<uint32_t>(kv.shape().page_bytes());
  std::vector<std::byte> pages;
  for (uint32_t s = 0; s < kv.shape().n_streams(); ++s) {
    const weir::StreamView stream = kv.stream(s);
    for (uint32_t row = 0; row + 1 < stream.n_pages; ++row) {
      const auto* page = reinterpret_cast<const std::byte*>(kv.page_keys(stream.slots[row]));
      pages.insert(pages.end(), page, page + page_bytes);
    }
  }
  std::printf("%llu tokens, %u streams\n", static_cast<unsigned long long>(n), kv.shape().n_streams());
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return pages;
}

}  // namespace model_pages
