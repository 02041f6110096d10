// Strings as JSON spells them.
#pragma once

#include <memory_resource>
#include <string_view>

#include "text/constraint/automaton.h"

namespace weir::constraint {

// One character of any string, however it is spelled.
ExprId any_character(Exprs& exprs);
// One character of the set, which is normalised, in its usual spelling: characters that must be escaped have escapes,
// all others stand for themselves.
ExprId usual_character(Exprs& exprs, CodeSet& set);
// All spellings of a string, without its quotes.
ExprId every_spelling(Exprs& exprs, std::string_view text);
// The usual one, with quotes, appended.
void append_quoted(std::string_view text, PodVector<char>& out);

}  // namespace weir::constraint
