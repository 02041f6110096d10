// Ranges of numbers.
#include "text/constraint/numbers.h"

#include <algorithm>

namespace weir::constraint {

namespace {

constexpr uint32_t kMaxNumberStates = 8000;

// A bound without its sign: the digits before the point, none for 0, and those behind it, without zeros at the end.
struct Bound {
  char whole[Decimal::kMaxDigits], fraction[2 * Decimal::kMaxDigits];
  uint32_t n_whole = 0, n_fraction = 0;
};

Bound split(const Decimal& d) {
  Bound out;
  if (d.n_digits == 0) return out;
  const auto n = static_cast<int32_t>(d.n_digits);
  for (int32_t i = 0; i < d.exponent; ++i) out.whole[out.n_whole++] = i < n ? d.digits[i] : '0';
  for (int32_t i = std::min(d.exponent, 0); i < 0; ++i) out.fraction[out.n_fraction++] = '0';
  for (int32_t i = std::max(d.exponent, 0); i < n; ++i) out.fraction[out.n_fraction++] = d.digits[i];
  return out;
}

// Sets of numbers without a sign, on one side of a bound.
class Side {
 public:
  Side(Exprs& exprs, const Bound& bound, bool above, bool exclusive, bool integers)
      : x_(exprs),
        b_(bound),
        above_(above),
        exclusive_(exclusive),
        integers_(integers),
        digit_(x_.bytes('0', '9')),
        parts_(exprs.memory()) {}

  ExprId run() {
    const ExprId behind = integers_ ? x_.empty() : x_.optional(x_.cat(x_.text("."), x_.repeat(digit_, 1, kNoLimit)));
    const ExprId beyond = x_.cat(other_wholes(), behind);
    parts_.clear();
    const std::string_view whole = b_.n_whole == 0 ? "0" : std::string_view(b_.whole, b_.n_whole);
    return x_.alt(beyond, x_.cat(x_.text(whole), integers_ ? fraction_of_integer() : fraction()));
  }

 private:
  ExprId digits(char first, char last) {
    return first > last ? x_.never() : x_.bytes(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
  }
  // Digits of which the first is further than the bound's at `i`, where `lowest` may be the first.
  ExprId further(char bound, char lowest) {
    return above_ ? digits(static_cast<char>(bound + 1), '9') : digits(lowest, static_cast<char>(bound - 1));
  }
  ExprId sum() { return x_.alt({parts_.data(), parts_.size()}); }

  // Integers beyond the bound's.
  ExprId other_wholes() {
    const ExprId first = x_.bytes('1', '9');
    const uint32_t n = b_.n_whole;
    for (uint32_t i = 0; i < n; ++i) {
      parts_.push_back(x_.cat(x_.cat(x_.text({b_.whole, i}), further(b_.whole[i], i == 0 ? '1' : '0')),
                              x_.repeat(digit_, n - i - 1, n - i - 1)));
    }
    if (above_) {
      parts_.push_back(x_.cat(first, x_.repeat(digit_, n, kNoLimit)));
    } else if (n != 0) {
      parts_.push_back(x_.text("0"));
      if (n > 1) parts_.push_back(x_.cat(first, x_.repeat(digit_, 0, n - 2)));
    }
    return sum();
  }

  // What may follow the bound's own integer.
  ExprId fraction_of_integer() {
    const bool is_in = above_ ? b_.n_fraction == 0 && !exclusive_ : b_.n_fraction != 0 || !exclusive_;
    return is_in ? x_.empty() : x_.never();
  }
  ExprId fraction() {
    const ExprId any = x_.repeat(digit_, 0, kNoLimit), zeros = x_.repeat(x_.text("0"), 0, kNoLimit);
    const ExprId more = x_.cat(x_.cat(zeros, x_.bytes('1', '9')), any);
    const uint32_t n = b_.n_fraction;
    for (uint32_t i = 0; i < n; ++i) {
      const ExprId before = x_.text({b_.fraction, i});
      parts_.push_back(x_.cat(x_.cat(before, further(b_.fraction[i], '0')), any));
      if (!above_ && i != 0) parts_.push_back(before);
    }
    const ExprId whole = x_.text({b_.fraction, n});
    if (above_) {
      parts_.push_back(x_.cat(whole, exclusive_ ? more : n == 0 ? x_.cat(digit_, any) : any));
    } else if (!exclusive_) {
      parts_.push_back(x_.cat(whole, n == 0 ? x_.cat(x_.text("0"), zeros) : zeros));
    }
    const ExprId with_point = x_.cat(x_.text("."), sum());
    const bool alone = above_ ? n == 0 && !exclusive_ : n != 0 || !exclusive_;
    return alone ? x_.optional(with_point) : with_point;
  }

  Exprs& x_;
  const Bound& b_;
  bool above_, exclusive_, integers_;
  ExprId digit_;
  PodVector<ExprId> parts_;
};

bool side(Exprs& x, const Decimal& bound, bool above, bool exclusive, bool integers, Dfa& out) {
  const Bound b = split(bound);
  return make_dfa(x, Side(x, b, above, exclusive, integers).run(), kMaxNumberStates, out);
}

// Numbers without a sign from `low` on and up to `high`; null: no bound.
bool between(std::pmr::memory_resource* memory, const Decimal* low, bool above_low, const Decimal* high,
             bool below_high, bool integers, Dfa& out) {
  Exprs x(memory);
  Dfa from(memory), to(memory);
  const Decimal zero{};
  if (!side(x, low == nullptr ? zero : *low, true, low != nullptr && above_low, integers, from)) return false;
  if (high == nullptr) {
    out.take(from);
    return true;
  }
  return side(x, *high, false, below_high, integers, to) && intersect(from, to, false, kMaxNumberStates, out);
}

bool make_free(std::pmr::memory_resource* memory, bool integers, Dfa& out) {
  Exprs x(memory);
  const ExprId digit = x.bytes('0', '9'), some = x.repeat(digit, 1, kNoLimit);
  const ExprId whole =
      x.cat(x.optional(x.text("-")), x.alt(x.text("0"), x.cat(x.bytes('1', '9'), x.repeat(digit, 0, kNoLimit))));
  if (integers) return make_dfa(x, whole, kMaxNumberStates, out);
  const ExprId sign = x.optional(x.alt(x.text("+"), x.text("-")));
  const ExprId power = x.cat(x.cat(x.alt(x.text("e"), x.text("E")), sign), some);
  return make_dfa(x, x.cat(whole, x.cat(x.optional(x.cat(x.text("."), some)), x.optional(power))), kMaxNumberStates,
                  out);
}

// The text of `plain`, or one of `minus` behind a minus sign, as one automaton.
void join(const Dfa& plain, const Dfa& minus, Dfa& out) {
  bool seen[256] = {};
  out.n_classes = 0;
  // Digits, point and sign are the only bytes; each is a class of its own.
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_used = (byte >= '0' && byte <= '9') || byte == '.' || byte == '-';
    seen[byte] = is_used;
    out.classes[byte] = static_cast<uint8_t>(is_used ? ++out.n_classes : 0);
  }
  ++out.n_classes;
  const uint32_t n_plain = plain.n_states();
  const auto put = [&](const Dfa& from, uint32_t state, uint32_t offset) {
    const uint32_t first = out.next.size();
    out.next.resize(first + out.n_classes, 0);
    out.flags.push_back(from.flags[state] & Dfa::kAccepts);
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t to = seen[byte] ? from.step(state, static_cast<uint8_t>(byte)) : 0;
      if (to != 0) out.next[first + out.classes[byte]] = static_cast<uint16_t>(to + offset);
    }
  };
  out.next.clear();
  out.flags.clear();
  if (plain.is_empty()) {
    out.next.resize(2 * out.n_classes, 0);
    out.flags.resize(2, 0);
  } else {
    for (uint32_t i = 0; i < n_plain; ++i) put(plain, i, 0);
  }
  const uint32_t offset = out.flags.size() - 1;
  for (uint32_t i = 1; i < minus.n_states(); ++i) put(minus, i, offset);
  if (!minus.is_empty()) out.next[out.n_classes + out.classes['-']] = static_cast<uint16_t>(Dfa::kStart + offset);
  tidy(out);
}

}  // namespace

void NumberRange::at_least(const Decimal& bound, bool exclusive) {
  const int order = has_min ? compare(bound, min) : 1;
  if (order > 0) min = bound;
  if (order > 0 || (order == 0 && exclusive)) above_min = exclusive;
  has_min = true;
}

void NumberRange::at_most(const Decimal& bound, bool exclusive) {
  const int order = has_max ? compare(bound, max) : -1;
  if (order < 0) max = bound;
  if (order < 0 || (order == 0 && exclusive)) below_max = exclusive;
  has_max = true;
}

bool NumberRange::is_empty() const {
  if (!has_min || !has_max) return false;
  const int order = compare(min, max);
  return order > 0 || (order == 0 && (above_min || below_max));
}

bool NumberRange::has(const Decimal& number) const {
  const int low = has_min ? compare(number, min) : 1, high = has_max ? compare(number, max) : -1;
  return (low > 0 || (low == 0 && !above_min)) && (high < 0 || (high == 0 && !below_max));
}

bool make_numbers(std::pmr::memory_resource* memory, const NumberRange& r, bool integers, Dfa& out) {
  if (!r.has_min && !r.has_max) return make_free(memory, integers, out);
  const Decimal zero{};
  Dfa plain(memory), minus(memory);
  const int max_to_zero = r.has_max ? compare(r.max, zero) : 1, min_to_zero = r.has_min ? compare(r.min, zero) : -1;
  // From 0 on: without a sign. The other side of 0 is turned around.
  if (max_to_zero > 0 || (max_to_zero == 0 && !r.below_max)) {
    const bool from_min = min_to_zero >= 0;
    if (!between(memory, from_min ? &r.min : nullptr, r.above_min, r.has_max ? &r.max : nullptr, r.below_max, integers,
                 plain))
      return false;
  }
  if (min_to_zero < 0) {
    Decimal low = r.max, high = r.min;
    low.negative = high.negative = false;
    const bool to_max = max_to_zero <= 0;
    if (!between(memory, to_max ? &low : nullptr, r.below_max, r.has_min ? &high : nullptr, r.above_min, integers,
                 minus))
      return false;
  }
  join(plain, minus, out);
  return true;
}

bool NumberStep::read(const Decimal& step) {
  if (step.n_digits > kMaxDigits) return false;
  digits = 0;
  for (uint32_t i = 0; i < step.n_digits; ++i) digits = digits * 10 + static_cast<uint32_t>(step.digits[i] - '0');
  power = step.exponent - static_cast<int32_t>(step.n_digits);
  return true;
}

bool NumberStep::has_multiple(const Decimal& number) const {
  if (number.n_digits == 0) return true;
  // The number's last digit is not 0, so the step's must not be before it.
  int32_t more = number.exponent - static_cast<int32_t>(number.n_digits) - power;
  if (more < 0) return false;
  uint64_t rest = 0;
  for (uint32_t i = 0; i < number.n_digits; ++i)
    rest = (rest * 10 + static_cast<uint64_t>(number.digits[i] - '0')) % digits;
  for (; more > 0; --more) rest = rest * 10 % digits;
  return rest == 0;
}

// Digits are read with the remainder of what they say so far. With a step that ends in zeros as many digits must be 0
// at the end: `whole` has the remainder before the latest zeros, and their number. With one behind the point the digits
// there go on with the remainder, as many as the step has, and zeros.
bool make_multiples(const NumberStep& step, bool integers, Dfa& out) {
  uint32_t k = step.digits;
  const auto n_zeros = static_cast<uint32_t>(std::max(step.power, 0));
  auto n_behind = static_cast<uint32_t>(std::max(-step.power, 0));
  for (; integers && n_behind > 0; --n_behind) {  // the step's least multiple that is an integer
    k /= k % 10 == 0 ? 10 : k % 5 == 0 ? 5 : k % 2 == 0 ? 2 : 1;
  }
  enum : uint32_t { kDead, kStart, kMinus, kZero, kPoint, kZeros, kFirst };  // kPoint, kZeros: nothing but zeros behind
  constexpr uint32_t kPointClass = 11, kMinusClass = 12;
  const uint64_t n_whole = uint64_t{k} * (n_zeros + 1), n = kFirst + n_whole + uint64_t{k} * (n_behind + 1);
  if (n > kMaxNumberStates) return false;
  const auto whole = [&](uint32_t rest, uint32_t zeros) { return kFirst + rest * (n_zeros + 1) + zeros; };
  const auto behind = [&](uint32_t rest, uint32_t digits) {
    return kFirst + static_cast<uint32_t>(n_whole) + rest * (n_behind + 1) + digits;
  };
  const auto times = [&](uint32_t rest, uint32_t power) {
    uint64_t r = rest;
    for (; power > 0; --power) r = r * 10 % k;
    return static_cast<uint32_t>(r);
  };
  std::fill_n(out.classes, 256, uint8_t{0});
  for (uint32_t d = 0; d < 10; ++d) out.classes['0' + d] = static_cast<uint8_t>(d + 1);
  out.classes['.'] = kPointClass;
  out.classes['-'] = kMinusClass;
  out.n_classes = 13;
  out.next.clear();
  out.flags.clear();
  out.next.resize(static_cast<uint32_t>(n) * out.n_classes, 0);
  out.flags.resize(static_cast<uint32_t>(n), 0);
  const auto lead = [&](uint32_t from, uint32_t by, uint32_t to) {
    out.next[from * out.n_classes + by] = static_cast<uint16_t>(to);
  };
  const auto point = [&](uint32_t from, uint32_t rest) {
    if (!integers) lead(from, kPointClass, n_behind == 0 ? uint32_t{kPoint} : behind(rest, 0));
  };
  lead(kStart, kMinusClass, kMinus);
  for (const uint32_t from : {kStart, kMinus}) {
    lead(from, 1, kZero);
    for (uint32_t d = 1; d < 10; ++d) lead(from, d + 1, whole(d % k, 0));
  }
  lead(kPoint, 1, kZeros);
  lead(kZeros, 1, kZeros);
  out.flags[kZero] = out.flags[kZeros] = Dfa::kAccepts;
  point(kZero, 0);
  for (uint32_t rest = 0; rest < k; ++rest) {
    for (uint32_t zeros = 0; zeros <= n_zeros; ++zeros) {
      const uint32_t from = whole(rest, zeros);
      const bool accepts = zeros == n_zeros && times(rest, n_behind) == 0;
      if (accepts) out.flags[from] = Dfa::kAccepts;
      if (accepts || n_behind != 0) point(from, rest);
      lead(from, 1, zeros < n_zeros ? whole(rest, zeros + 1) : whole(times(rest, 1), zeros));
      const uint32_t before = times(rest, zeros + 1);
      for (uint32_t d = 1; d < 10; ++d) lead(from, d + 1, whole((before + d) % k, 0));
    }
    for (uint32_t digits = 0; digits <= n_behind && n_behind != 0; ++digits) {
      const uint32_t from = behind(rest, digits);
      const bool accepts = digits != 0 && times(rest, n_behind - digits) == 0;
      if (accepts) out.flags[from] = Dfa::kAccepts;
      if (accepts && digits == n_behind) lead(from, 1, from);
      for (uint32_t d = 0; d < 10 && digits < n_behind; ++d)
        lead(from, d + 1, behind((times(rest, 1) + d) % k, digits + 1));
    }
  }
  tidy(out);
  return true;
}

}  // namespace weir::constraint
