// Tools that a model may call: the list of --tools or of a line of a prompts file, whether one of them must be called,
// and the calls of an answer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "weir_cpp.h"

namespace weir_cli {

struct ToolList {
  std::string json;                // as OpenAI's API has it; "": none
  std::vector<std::string> names;  // in its order
};

// Larger than any prompt can be.
inline constexpr size_t kMaxToolBytes = size_t{1} << 20;

// Throws std::runtime_error saying what is wrong with the list. `what` begins the message, "" for nothing.
ToolList parse_tools(std::string_view text, const std::string& what);
// The same of a --tools: a file, or a text that begins with a bracket. Throws UsageError.
ToolList read_tools(const std::string& file_or_text);

// Whether and what an answer calls.
inline constexpr char kToolsFree[] = "auto", kToolsRequired[] = "required", kToolsNone[] = "none";  // else: a name
// What is wrong with this choice from these tools, or "".
std::string wrong_with_choice(const std::string& choice, const ToolList& tools);
// The list that answers must call from: all of it, or the one of this name.
std::string tools_to_call(const ToolList& tools, const std::string& choice);

// The calls of the session's latest answer: a list of objects with id, name and arguments. `must_call`: it was made to
// be a call, {"name", "arguments"}. `n_before`: calls of the conversation before it. `is_malformed`: there was one that
// cannot be read.
nlohmann::ordered_json calls_of_answer(weir_session* session, bool must_call, size_t n_before, bool& is_malformed);

}  // namespace weir_cli
