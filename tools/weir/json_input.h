// JSON that users give: objects stay in the order of the text, and what is wrong is said with its line and column.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace weir_cli {

// Throws std::runtime_error: "not valid JSON: parse error at line 3, ...", also for a text that is nested so deeply
// that it could only exhaust the stack, or has so many values that reading it could take minutes.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace weir_cli
