// Sequences, and operators between values, as Python has them.
#include <algorithm>
#include <cmath>

#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {

using std::string_view;

// ---- sequences ----

Value Run::text_of(const Value& value) {
  if (value.is_string()) return value;
  Str* text = make_text();
  const Value kept = text;
  put_text(*text, value);
  has_room(text->text.size());
  return kept;
}

int64_t Run::length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_dict()) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is_sequence() && value.sequence().kind != SeqKind::kIterator)
    return static_cast<int64_t>(value.sequence().items.size());
  int64_t n = 0;
  if (value.is_string()) {
    const string_view text = value.view();
    for (size_t i = 0, bytes; i < text.size(); i += bytes, ++n) code_at(text, i, bytes);
    spend(text.size() / kStepBytes);
  } else {
    error("object of type '%s' has no len()", type_name(value));
  }
  return n;
}

Value Run::items_of(const Value& value) {
  if (value.is_sequence() && value.sequence().kind != SeqKind::kIterator) return value;
  Seq* list = make_list();
  const Value kept = list;
  if (value.is_sequence()) {
    list->items.swap(value.sequence().items);
  } else if (value.is_dict()) {
    for (const Dict::Entry& entry : value.dict().entries) list->items.push_back(entry.key);
  } else if (value.is_string()) {
    const Str& text = value.text();
    if (!spend(text.text.size())) return kept;
    for (size_t i = 0, n; i < text.text.size(); i += n) {
      code_at(text.text, i, n);
      Str* letter = make_text();
      list->items.push_back(letter);
      letter->append(text, i, i + n);
    }
  } else if (value.is(Type::kLoop)) {
    error("a loop cannot be iterated over");
  } else if (!value.is_undefined()) {
    error("'%s' object is not iterable", type_name(value));
  }
  spend(list->items.size());
  return kept;
}

Value Run::sliced(const Value& of, const Value& start, const Value& stop, const Value& step) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integer()) return error("slice indices must be integers");
  }
  if (of.is_undefined()) return undefined_error(of);
  const bool is_text = of.is_string();
  if (!is_text && !(of.is_sequence() && of.sequence().has_items()))
    return error("'%s' object cannot be sliced", type_name(of));
  const int64_t n = length_of(of), by = step.is_none() ? 1 : step.integer();
  if (by == 0) return error("a slice's step cannot be zero");
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const int64_t at = value.integer() < 0 ? std::max(value.integer(), -n - 1) + n : value.integer();
    return by > 0 ? std::clamp<int64_t>(at, 0, n) : std::clamp<int64_t>(at, -1, n - 1);
  };
  const int64_t from = bound(start, by > 0 ? 0 : n - 1), to = bound(stop, by > 0 ? n : -1);
  std::pmr::vector<size_t> begins(&heap);  // of characters, where they have several bytes
  const Str* text = is_text ? &of.text() : nullptr;
  if (is_text && static_cast<size_t>(n) != text->text.size()) {
    for (size_t i = 0, bytes; i < text->text.size(); i += bytes) {
      begins.push_back(i);
      code_at(text->text, i, bytes);
    }
    begins.push_back(text->text.size());
  }
  const auto byte = [&](int64_t i) { return begins.empty() ? static_cast<size_t>(i) : begins[static_cast<size_t>(i)]; };
  Str* cut = is_text ? make_text() : nullptr;
  Seq* list = is_text ? nullptr : make_list(of.sequence().is_tuple() ? SeqKind::kTuple : SeqKind::kList);
  const Value kept = is_text ? Value(cut) : Value(list);
  if (is_text && by == 1) {
    if (from < to) cut->append(*text, byte(from), byte(to));
    return kept;
  }
  for (int64_t i = from; (by > 0 ? i < to : i > to) && spend(1); i += by) {
    if (is_text) {
      cut->append(*text, byte(i), byte(i + 1));
    } else {
      list->items.push_back(of.sequence().items[static_cast<size_t>(i)]);
    }
    if (by > n || by < -n) break;
  }
  return kept;
}

// ---- operators ----

bool Run::contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) error("'in <string>' requires string as left operand, not %s", type_name(item));
    if (failed() || !spend(container.view().size() / kStepBytes)) return false;
    return container.view().find(item.view()) != string_view::npos;
  }
  if (container.is_dict()) {
    if (!can_be_key(item)) error("unhashable type: '%s'", type_name(item));
    return !failed() && container.dict().find(item) != nullptr;
  }
  if (!container.is_sequence()) {
    error("argument of type '%s' is not iterable", type_name(container));
    return false;
  }
  const Value list = items_of(container);
  const auto& items = list.sequence().items;
  return spend(items.size()) &&
         std::any_of(items.begin(), items.end(), [&](const Value& other) { return are_equal(other, item); });
}

bool Run::holds(Op op, const Value& left, const Value& right) {
  if (op == Op::kIn || op == Op::kNotIn) return contains(right, left) == (op == Op::kIn);
  if (left.is_string() && right.is_string()) spend(std::min(left.view().size(), right.view().size()) / kStepBytes);
  if (op == Op::kEq || op == Op::kNe) return are_equal(left, right) == (op == Op::kEq);
  if (left.is_undefined() || right.is_undefined()) {
    undefined_error(left.is_undefined() ? left : right);
    return false;
  }
  if (left.is_number() && right.is_number() && (std::isnan(left.real()) || std::isnan(right.real()))) return false;
  const int order = compare(left, right);
  if (order == 2) {
    error("'%s' and '%s' cannot be ordered", type_name(left), type_name(right));
    return false;
  }
  return op == Op::kLt ? order < 0 : op == Op::kLe ? order <= 0 : op == Op::kGt ? order > 0 : order >= 0;
}

Value Run::arithmetic(Op op, const Value& left, const Value& right) {
  const bool said = left.is_said() || right.is_said();
  const bool is_division = op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod;
  if (is_division && right.real() == 0) return error("division by zero");
  const bool is_whole = left.is_integer() && right.is_integer();
  if (!is_whole || op == Op::kDiv || (op == Op::kPow && right.integer() < 0)) {
    const double a = left.real(), b = right.real();
    if (op == Op::kPow && ((a == 0 && b < 0) || (a < 0 && std::floor(b) != b))) return error("no such power");
    double result = op == Op::kAdd   ? a + b
                    : op == Op::kSub ? a - b
                    : op == Op::kMul ? a * b
                    : op == Op::kPow ? std::pow(a, b)
                                     : a / b;
    if (op == Op::kFloorDiv || op == Op::kMod) {
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      result = op == Op::kMod ? rest : std::round((a - rest) / b);
    }
    return Value::real(result, said);
  }
  const int64_t a = left.integer(), b = right.integer();
  int64_t result = 0;
  bool overflows = false;
  if (op == Op::kAdd) overflows = __builtin_add_overflow(a, b, &result);
  if (op == Op::kSub) overflows = __builtin_sub_overflow(a, b, &result);
  if (op == Op::kMul) overflows = __builtin_mul_overflow(a, b, &result);
  if (op == Op::kFloorDiv || op == Op::kMod) {
    if (b == -1) {
      overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
      if (op == Op::kMod) result = 0;
    } else {
      const int64_t rest = a % b, whole = a / b;
      const bool is_off = rest != 0 && (rest < 0) != (b < 0);
      result = op == Op::kMod ? rest + (is_off ? b : 0) : whole - (is_off ? 1 : 0);
    }
  }
  if (op == Op::kPow) {
    result = 1;
    // The magnitude of a grows with every step, but for -1, 0 and 1.
    const int64_t n = a >= -1 && a <= 1 ? (a == -1 ? b % 2 + 2 : std::min<int64_t>(b, 1)) : b;
    for (int64_t i = 0; i < n && !overflows; ++i) overflows = __builtin_mul_overflow(result, a, &result);
  }
  return overflows ? error("a number has more than 64 bits") : Value::integer(result, said);
}

Value Run::repeated(const Value& value, int64_t n) {
  n = std::max<int64_t>(n, 0);
  if (value.is_string()) {
    const uint64_t n_bytes = value.view().size();
    if (n_bytes != 0 &&
        !has_room(static_cast<uint64_t>(n) > kMaxTextBytes ? kMaxTextBytes + 1 : n_bytes * static_cast<uint64_t>(n)))
      return {};
    Str* text = make_text();
    const Value kept = text;
    for (int64_t i = 0; i < n && n_bytes != 0; ++i) text->append(value.text());
    return kept;
  }
  const auto& items = value.sequence().items;
  Seq* list = make_list(value.sequence().is_tuple() ? SeqKind::kTuple : SeqKind::kList);
  const Value kept = list;
  for (int64_t i = 0; i < n && !items.empty() && spend(items.size()); ++i)
    list->items.insert(list->items.end(), items.begin(), items.end());
  return kept;
}

Value Run::binary(Op op, const Value& left, const Value& right) {
  if (left.is_undefined() || right.is_undefined()) {
    if (op == Op::kMod && left.is_string()) return format_percent(*this, left.text(), right);
    return undefined_error(left.is_undefined() ? left : right);
  }
  if (left.is_number() && right.is_number()) return arithmetic(op, left, right);
  const auto is_list = [](const Value& value) {
    return value.is_sequence() && value.sequence().kind <= SeqKind::kGroup;
  };
  if (op == Op::kAdd && left.is_string() && right.is_string()) {
    if (!has_room(left.view().size() + right.view().size())) return {};
    Str* text = make_text();
    const Value kept = text;
    text->text.reserve(left.view().size() + right.view().size());
    text->append(left.text());
    text->append(right.text());
    return kept;
  }
  if (op == Op::kAdd && is_list(left) && is_list(right) && left.sequence().is_tuple() == right.sequence().is_tuple()) {
    Seq* list = make_list(left.sequence().is_tuple() ? SeqKind::kTuple : SeqKind::kList);
    const Value kept = list;
    if (!spend(left.sequence().items.size() + right.sequence().items.size())) return kept;
    for (const Value* part : {&left, &right})
      list->items.insert(list->items.end(), part->sequence().items.begin(), part->sequence().items.end());
    return kept;
  }
  if (op == Op::kMul && right.is_integer() && (left.is_string() || is_list(left)))
    return repeated(left, right.integer());
  if (op == Op::kMul && left.is_integer() && (right.is_string() || is_list(right)))
    return repeated(right, left.integer());
  if (op == Op::kMod && left.is_string()) return format_percent(*this, left.text(), right);
  if (op == Op::kAdd && left.is_string())
    return error("can only concatenate str (not \"%s\") to str", type_name(right));
  constexpr const char* kSigns[] = {"", "+", "-", "*", "/", "//", "%", "**"};
  return error("unsupported operand types for %s: '%s' and '%s'", kSigns[static_cast<size_t>(op)], type_name(left),
               type_name(right));
}

}  // namespace weir::jinja
