// Cutting texts as chat templates do, that is by Python's rules. All results are views into the argument.
#pragma once

#include <string_view>

namespace weir {

inline constexpr std::string_view kThinkBegin = "<think>", kThinkEnd = "</think>";

// Without white space (str.isspace) at both ends, or at the back only.
std::string_view trim(std::string_view text);
std::string_view trim_end(std::string_view text);

// What follows the last </think>, or everything.
std::string_view after_thoughts(std::string_view text);
}  // namespace weir
