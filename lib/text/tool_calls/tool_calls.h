// Calls of tools in the text of an answer, whatever way a model writes them, as JSON. What is read are whole calls,
// each once, so that an answer costs as much as it is long.
#pragma once

#include <memory_resource>
#include <string>
#include <string_view>

#include "text/answer_format.h"

namespace weir {

class ToolCalls {
 public:
  // Limits of one call, and of the number of calls in an answer.
  static constexpr size_t kMaxBytes = size_t{1} << 20;
  static constexpr uint32_t kMaxCalls = 256;

  // Calls without an id get "call" and a number from first_id on, in five digits or letters.
  ToolCalls(std::pmr::memory_resource* memory, uint64_t first_id) : json_(memory), next_id_(first_id) {}

  enum class Kind : uint8_t { kCalls, kMalformed, kText };  // kText: an object that calls nothing
  // The text between the tags of a call, in which there may be several calls; `header`: what came before it between
  // tags. A malformed one adds nothing.
  Kind add(CallForm form, std::string_view header, std::string_view text);
  // [{"id", "name", "arguments"}], NUL-terminated; null: none.
  const char* json() const { return n_calls_ == 0 ? nullptr : json_.c_str(); }
  uint32_t n_calls() const { return n_calls_; }
  void wipe();

 private:
  std::pmr::string json_;
  uint64_t next_id_;
  uint32_t n_calls_ = 0;
};

}  // namespace weir
