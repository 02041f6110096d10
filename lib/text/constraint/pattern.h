// Regular expressions of JSON schemas (ECMA-262, without what needs memory: no references back, no looking around).
#pragma once

#include <string_view>

#include "core/status.h"
#include "text/constraint/automaton.h"

namespace weir::constraint {

// The JSON strings, with quotes, whose text has a match of `pattern` somewhere. Characters have their usual spelling.
// `what` begins the message of a failure.
Status make_pattern(std::pmr::memory_resource* memory, std::string_view pattern, const char* what, Dfa& out);
// The pattern of a named format, whole; null: it is not known.
const char* format_pattern(std::string_view name);
inline constexpr char kFormatNames[] =
    "date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6 and uri";  // that are known
// JSON strings of min..max characters in the usual spelling.
bool make_length(std::pmr::memory_resource* memory, uint32_t min, uint32_t max, Dfa& out);

}  // namespace weir::constraint
