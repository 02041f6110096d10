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

// What multipleOf may have: digits without zeros at the end, times a power of ten.
struct NumberStep {
  static constexpr uint32_t kMaxDigits = 9;
  uint32_t digits = 1;
  int32_t power = 0;

  bool read(const Decimal& step);  // above 0; false: it has more digits
  bool has_multiple(const Decimal& number) const;
};

// Multiples of a step, without exponent, integers without fraction. False: too large.
bool make_multiples(const NumberStep& step, bool integers, Dfa& out);

}  // namespace weir::constraint
