// The keys of a file that name tokens by their ids.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/status.h"
#include "gguf/gguf.h"

namespace weir {

// Keys of tokens that end an answer. The first may be an array, of which the first is the end token.
inline constexpr std::string_view kEosIdKey = "tokenizer.ggml.eos_token_id", kEotIdKey = "tokenizer.ggml.eot_token_id",
                                  kEomIdKey = "tokenizer.ggml.eom_token_id",
                                  kEosIdsKey = "tokenizer.ggml.eos_token_ids";

inline constexpr uint64_t kMaxEndIds = 256;

// Calls use(key, id) for every id at these keys, as the file has it.
template <class F>
Status each_end_id(const GgufFile& file, F&& use) {
  for (std::string_view key : {kEosIdKey, kEotIdKey, kEomIdKey, kEosIdsKey}) {
    const GgufValue* value = file.find(key);
    if (value == nullptr) continue;
    if (value->type == GgufType::kArray) {
      WEIR_TRY(file.get_array(key, GgufArray::kIntegers, true, value));
      if (value->count > kMaxEndIds) {
        return fail(WEIR_ERR_FORMAT, "%.*s: %llu tokens", static_cast<int>(key.size()), key.data(),
                    static_cast<unsigned long long>(value->count));
      }
      for (uint64_t i = 0; i < value->count; ++i) use(key, gguf_integer(*value, i));
    } else {
      int64_t id = 0;
      WEIR_TRY(file.get_i64(key, id));
      use(key, id);
    }
  }
  return {};
}

}  // namespace weir
