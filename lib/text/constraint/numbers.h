// Sets of numbers as JSON writes them.
#pragma once

#include "core/json_reader.h"
#include "text/constraint/automaton.h"

namespace weir::constraint {

struct NumberRange {
  bool has_min = false, has_max = false;
  bool above_min = false, below_max = false;  // the bounds themselves are not in it
  Decimal min, max;

  void at_least(const Decimal& bound, bool exclusive);
  void at_most(const Decimal& bound, bool exclusive);
  bool is_empty() const;
  bool has(const Decimal& number) const;
};

// Integers without fraction and exponent; other numbers with them, but where there are bounds without exponents. False:
// too large.
bool make_numbers(std::pmr::memory_resource* memory, const NumberRange& range, bool integers, Dfa& out);

}  // namespace weir::constraint
