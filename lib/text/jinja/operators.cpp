// Sequences, and operators between values, as Python has them.
#include <algorithm>
#include <cmath>

#include "text/jinja/run.h"

namespace weir::jinja {

using std::string_view;

// ---- sequences ----

Value Run::text_of(const Value& value) {
  if (value.is_string()) return value;
  Str* text = new_text();
  put_text(*text, value);
  has_room(text->text.size());
  return text;
}

int64_t Run::number(const Args& args, size_t i, int64_t otherwise) {
  if (!args.has_some(i)) return otherwise;
  if (!args[i].is_integer()) error("an integer was expected, not '%s'", type_name(args[i]));
  return args[i].is_integer() ? args[i].integer() : otherwise;
}

int64_t Run::length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_dict()) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is_sequence() && value.sequence().kind != SeqKind::kIterator)
    return static_cast<int64_t>(value.items().size());
  if (!value.is_string()) return error("object of type '%s' has no len()", type_name(value)), 0;
  int64_t n = 0;
  const string_view text = value.view();
  for (size_t i = 0, bytes; i < text.size(); i += bytes, ++n) code_at(text, i, bytes);
  spend(text.size() / kStepBytes);
  return n;
}

Value Run::items_of(const Value& value) {
  if (value.is_sequence() && value.sequence().kind != SeqKind::kIterator) return value;
  Seq* list = new_list();
  if (value.is_sequence()) {
    list->items.swap(value.items());
  } else if (value.is_dict()) {
    for (const Dict::Entry& entry : value.dict().entries) list->items.push_back(entry.key);
  } else if (value.is_string()) {
    if (!spend(value.view().size())) return list;
    for (size_t i = 0, n; i < value.view().size(); i += n) {
      code_at(value.view(), i, n);
      Str* letter = new_text();
      letter->append(value.text(), i, i + n);
      list->items.push_back(letter);
    }
  } else if (!value.is_undefined()) {
    error("'%s' object is not iterable", type_name(value));
  }
  spend(list->items.size());
  return list;
}

Value Run::sliced(const Value& of, const Value& start, const Value& stop, const Value& step) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_integer()) return error("slice indices must be integers");
  }
  if (of.is_undefined()) return undefined_error(of);
  if (!of.is_string() && !(of.is_sequence() && of.sequence().has_items()))
    return error("'%s' object cannot be sliced", type_name(of));
  const int64_t n = length_of(of), by = step.is_none() ? 1 : step.integer();
  if (by == 0) return error("a slice's step cannot be zero");
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const int64_t at = value.integer() < 0 ? std::max(value.integer(), -n - 1) + n : value.integer();
    return by > 0 ? std::clamp<int64_t>(at, 0, n) : std::clamp<int64_t>(at, -1, n - 1);
  };
  const int64_t from = bound(start, by > 0 ? 0 : n - 1), to = bound(stop, by > 0 ? n : -1);
  Str* cut = new_text();
  if (of.is_string() && by == 1) {
    size_t at = 0, begin = 0, bytes;
    for (int64_t i = 0; i < to; ++i, at += bytes) {
      if (i == from) begin = at;
      code_at(of.view(), at, bytes);
    }
    if (from < to) cut->append(of.text(), begin, at);
    return cut;
  }
  const Value all = items_of(of);
  Seq* list = new_list(all.sequence().is_tuple() ? SeqKind::kTuple : SeqKind::kList);
  for (int64_t i = from; (by > 0 ? i < to : i > to) && spend(1); i += by) {
    const Value& one = all.items()[static_cast<size_t>(i)];
    of.is_string() ? cut->append(one.text()) : list->items.push_back(one);
    if (by > n || by < -n) break;
  }
  return of.is_string() ? Value(cut) : Value(list);
}

// ---- operators ----

Value Run::eval_compare(const Node& node, Value left) {
  for (const Node* operand : node.list) {
    Value right = eval(*operand->a);
    line_ = operand->line;
    if (failed() || !holds(operand->op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Run::contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) error("'in <string>' requires string as left operand, not %s", type_name(item));
    return spend(container.view().size() / kStepBytes) && container.view().find(item.view()) != string_view::npos;
  }
  if (container.is_dict()) {
    if (!can_be_key(item)) error("unhashable type: '%s'", type_name(item));
    return !failed() && container.dict().find(item) != nullptr;
  }
  const Value list = items_of(container);
  return spend(list.items().size()) && std::any_of(list.items().begin(), list.items().end(),
                                                   [&](const Value& other) { return are_equal(other, item); });
}

bool Run::holds(Op op, const Value& left, const Value& right) {
  if (op == Op::kIn || op == Op::kNotIn) return contains(right, left) == (op == Op::kIn);
  if (left.is_string() && right.is_string()) spend(std::min(left.view().size(), right.view().size()) / kStepBytes);
  if (op == Op::kEq || op == Op::kNe) return are_equal(left, right) == (op == Op::kEq);
  if (left.is_undefined() || right.is_undefined()) return undefined_error(left.is_undefined() ? left : right), false;
  if (left.is_number() && right.is_number() && (std::isnan(left.real()) || std::isnan(right.real()))) return false;
  const int order = compare(left, right);
  if (order == 2) return error("'%s' and '%s' cannot be ordered", type_name(left), type_name(right)), false;
  return op == Op::kLt ? order < 0 : op == Op::kLe ? order <= 0 : op == Op::kGt ? order > 0 : order >= 0;
}

Value Run::arithmetic(Op op, const Value& left, const Value& right) {
  const bool said = left.is_said() || right.is_said();
  const bool is_division = op == Op::kDiv || op == Op::kFloorDiv || op == Op::kMod;
  if (is_division && right.real() == 0) return error("division by zero");
  if (!left.is_integer() || !right.is_integer() || op == Op::kDiv || (op == Op::kPow && right.integer() < 0)) {
    const double a = left.real(), b = right.real();
    if (op == Op::kPow && ((a == 0 && b < 0) || (a < 0 && std::floor(b) != b))) return error("no such power");
    double rest = is_division ? std::fmod(a, b) : 0;
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    const double results[] = {a + b, a - b, a * b, a / b, std::round((a - rest) / b), rest, std::pow(a, b)};
    return Value::real(results[static_cast<size_t>(op)], said);
  }
  const int64_t a = left.integer(), b = right.integer();
  int64_t result = 1;
  bool overflows = is_division && a == INT64_MIN && b == -1;
  if (op == Op::kAdd) overflows = __builtin_add_overflow(a, b, &result);
  if (op == Op::kSub) overflows = __builtin_sub_overflow(a, b, &result);
  if (op == Op::kMul) overflows = __builtin_mul_overflow(a, b, &result);
  if (is_division && !overflows) {
    const bool is_off = a % b != 0 && (a % b < 0) != (b < 0);
    result = op == Op::kMod ? a % b + (is_off ? b : 0) : a / b - (is_off ? 1 : 0);
  }
  // The magnitude of a grows with every step of a power, but for -1, 0 and 1.
  const int64_t n = a >= -1 && a <= 1 ? (a == -1 ? b % 2 + 2 : std::min<int64_t>(b, 1)) : b;
  for (int64_t i = 0; op == Op::kPow && i < n && !overflows; ++i)
    overflows = __builtin_mul_overflow(result, a, &result);
  return overflows ? error("a number has more than 64 bits") : Value::integer(result, said);
}

Value Run::binary(Op op, const Value& left, const Value& right) {
  if (op == Op::kMod && left.is_string()) return format_percent(*this, left.text(), right);
  if (op == Op::kConcat || (op == Op::kAdd && left.is_string() && right.is_string())) {
    Str* text = new_text();
    const Value first = text_of(left), second = text_of(right);
    if (!has_room(first.view().size() + second.view().size())) return {};
    text->text.reserve(first.view().size() + second.view().size());
    text->append(first.text());
    text->append(second.text());
    return text;
  }
  if (left.is_undefined() || right.is_undefined()) return undefined_error(left.is_undefined() ? left : right);
  if (left.is_number() && right.is_number()) return arithmetic(op, left, right);
  if (op == Op::kAdd && left.is_list() && right.is_list() &&
      left.sequence().is_tuple() == right.sequence().is_tuple()) {
    Seq* list = new_list(left.sequence().is_tuple() ? SeqKind::kTuple : SeqKind::kList);
    if (!spend(left.items().size() + right.items().size())) return list;
    list->items = left.items();
    list->items.insert(list->items.end(), right.items().begin(), right.items().end());
    return list;
  }
  if (op == Op::kMul && left.is_integer() && right.is_string()) return binary(op, right, left);
  if (op == Op::kMul && left.is_string() && right.is_integer()) {
    Str* text = new_text();
    const auto n = static_cast<uint64_t>(std::max<int64_t>(right.integer(), 0));
    if (!has_room(n > kMaxTextBytes ? n : n * left.view().size())) return text;
    for (uint64_t i = 0; i < n; ++i) text->append(left.text());
    return text;
  }
  if (op == Op::kAdd && left.is_string())
    return error("can only concatenate str (not \"%s\") to str", type_name(right));
  constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return error("unsupported operand types for %s: '%s' and '%s'", kSigns[static_cast<size_t>(op)], type_name(left),
               type_name(right));
}

}  // namespace weir::jinja
