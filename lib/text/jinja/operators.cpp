// What a rendering does with values, as Python has it: sequences, operators, attributes, and calls of the language's
// functions. Errors and limits.
#include <algorithm>
#include <cmath>
#include <cstdarg>

#include "core/c_format.h"
#include "text/jinja/run.h"

namespace weir::jinja {

using std::string_view;

// ---- errors and limits ----

std::pmr::string Run::short_name(string_view name) { return std::pmr::string(name.substr(0, 60), &heap); }

Value Run::refuse(weir_status code, string_view message) {
  if (!failed()) status_ = fail(code, WEIR_TEMPLATE_LINE "%s", line_, std::pmr::string(message, &heap).c_str());
  return {};
}

Value Run::error(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  c_vformat(text, sizeof(text), format, args);
  va_end(args);
  return refuse(kBadTemplate, text);
}

Value Run::undefined_error(const Value& value) {
  const Node* node = value.node();
  if (node == nullptr || node->text.empty()) return error("a value is undefined");
  return error(node->kind == NodeKind::kAttribute ? "there is no attribute '%s'" : "'%s' is undefined",
               short_name(node->text).c_str());
}

bool Run::spend(uint64_t n_steps) {
  heap.n_steps += n_steps;
  if (failed()) return false;
  if (heap.is_too_deep) refuse(WEIR_ERR_UNSUPPORTED, "values are nested too deeply");
  if (heap.n_steps > kMaxSteps) refuse(WEIR_ERR_UNSUPPORTED, "the template runs for too long");
  if (heap.bytes() > kMaxHeapBytes) refuse(WEIR_ERR_UNSUPPORTED, "the template takes too much memory");
  return !failed();
}

bool Run::can_search(string_view in, string_view wanted) {
  return spend(1 + in.size() / kStepBytes * (1 + wanted.size() / kStepBytes));
}

bool Run::has_room(uint64_t size, uint64_t n_more) {
  if (n_more > kMaxTextBytes || size + n_more > kMaxTextBytes)
    refuse(WEIR_ERR_UNSUPPORTED, "the template makes a text that is too long");
  return spend(1 + n_more / kStepBytes);
}

// ---- texts and sequences ----

bool Run::add(Str& to, string_view more, bool is_said) {
  if (!has_room(to.text.size(), more.size())) return false;
  to.append(more, is_said);
  return true;
}

bool Run::add(Str& to, const Str& from, size_t begin, size_t end) {
  end = std::min(end, from.text.size());
  if (begin >= end || !has_room(to.text.size(), end - begin)) return !failed();
  to.append(from, begin, end);
  return true;
}

Str* Run::part(const Str& text, size_t begin, size_t end) {
  Str* cut = new_text();
  add(*cut, text, begin, end);
  return cut;
}

Seq* Run::new_list(std::initializer_list<Value> items, SeqKind kind) {
  Seq* list = heap.make<Seq>(&heap, kind);
  list->items = items;
  return list;
}

Dict* Run::dict_of(const Args& args, const Value& from) {
  Dict* dict = new_dict();
  if (from.is_dict()) *dict = from.dict();
  for (const auto& [name, value] : args.named) dict->set(new_text(name), value);
  return dict;
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
    for (size_t i = 0, n; i < value.view().size() && !failed(); i += n) {
      code_at(value.view(), i, n);
      list->items.push_back(part(value.text(), i, i + n));
    }
  } else if (!value.is_undefined()) {
    error("'%s' object is not iterable", type_name(value));
  }
  spend(list->items.size());
  return list;
}

// Where the character of this index begins.
static size_t byte_of(string_view text, int64_t index) {
  size_t at = 0;
  for (size_t n; index > 0 && at < text.size(); --index, at += n) code_at(text, at, n);
  return at;
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
  if (of.is_string() && by == 1) {
    const size_t begin = byte_of(of.view(), from);
    return part(of.text(), begin, begin + byte_of(of.view().substr(begin), to - from));
  }
  const Value all = items_of(of);
  Seq* list = new_list({}, all.sequence().is_tuple() ? SeqKind::kTuple : SeqKind::kList);
  for (int64_t i = from; (by > 0 ? i < to : i > to) && spend(1); i += by) {
    list->items.push_back(all.items()[static_cast<size_t>(i)]);
    if (by > n || by < -n) break;
  }
  if (!of.is_string()) return list;
  Str* text = new_text();
  for (const Value& letter : list->items) add(*text, letter.text());
  return text;
}

// ---- operators ----

bool Run::contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (!item.is_string()) error("'in <string>' requires string as left operand, not %s", type_name(item));
    return !failed() && can_search(container.view(), item.view()) &&
           container.view().find(item.view()) != string_view::npos;
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
  if (op == Op::kIn || op == Op::kOut) return contains(right, left) == (op == Op::kIn);
  if (op == Op::kEq || op == Op::kNe) return are_equal(left, right) == (op == Op::kEq);
  if (left.is_undefined() || right.is_undefined()) return undefined_error(left.is_undefined() ? left : right), false;
  if (left.is_number() && right.is_number() && (std::isnan(left.real()) || std::isnan(right.real()))) return false;
  const int order = compare(left, right);
  if (order == 2) return error("'%s' and '%s' cannot be ordered", type_name(left), type_name(right)), false;
  return op == Op::kLt ? order < 0 : op == Op::kLe ? order <= 0 : op == Op::kGt ? order > 0 : order >= 0;
}

Value Run::arithmetic(Op op, const Value& left, const Value& right) {
  const bool said = left.is_said() || right.is_said();
  const bool is_division = op == Op::kDiv || op == Op::kFloor || op == Op::kMod;
  if (is_division && right.real() == 0) return error("division by zero");
  if (!left.is_integer() || !right.is_integer() || op == Op::kDiv || (op == Op::kPow && right.integer() < 0)) {
    const double a = left.real(), b = right.real();
    if (op == Op::kPow && ((a == 0 && b < 0) || (a < 0 && std::floor(b) != b))) return error("no such power");
    double rest = is_division ? std::fmod(a, b) : 0;
    if (rest == 0) rest = std::copysign(rest, b);
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

Value Run::repeated(const Value& value, int64_t n) {
  const auto n_times = static_cast<uint64_t>(std::max<int64_t>(n, 0));
  Str* text = new_text();
  Seq* list = new_list();
  if (value.is_list()) list->kind = value.sequence().kind;
  const uint64_t size = value.is_list() ? value.items().size() : value.view().size();
  if (size == 0 || !has_room(0, n_times) || !has_room(0, n_times * size)) return value.is_list() ? Value(list) : text;
  for (uint64_t i = 0; i < n_times && spend(value.is_list() ? size : 1); ++i) {
    if (value.is_string()) text->append(value.text());
    if (value.is_list()) list->items.insert(list->items.end(), value.items().begin(), value.items().end());
  }
  return value.is_list() ? Value(list) : Value(text);
}

Value Run::binary(Op op, const Value& left, const Value& right) {
  if (op >= Op::kEq) return Value::boolean(holds(op, left, right));
  if (op == Op::kMod && left.is_string()) return format_percent(*this, left.text(), right);
  if (op == Op::kJoin || (op == Op::kAdd && left.is_string() && right.is_string())) {
    Str* text = part(*text_of(left), 0);
    add(*text, *text_of(right));
    return text;
  }
  if (left.is_undefined() || right.is_undefined()) return undefined_error(left.is_undefined() ? left : right);
  if (left.is_number() && right.is_number()) return arithmetic(op, left, right);
  const bool is_tuple = left.is_list() && left.sequence().is_tuple();
  if (op == Op::kAdd && left.is_list() && right.is_list() && right.sequence().is_tuple() == is_tuple) {
    Seq* list = new_list({}, is_tuple ? SeqKind::kTuple : SeqKind::kList);
    if (!spend(left.items().size() + right.items().size())) return list;
    list->items = left.items();
    list->items.insert(list->items.end(), right.items().begin(), right.items().end());
    return list;
  }
  const bool is_swapped = left.is_integer();  // 2 * 'a'
  const Value &many = is_swapped ? right : left, &n = is_swapped ? left : right;
  if (op == Op::kMul && n.is_integer() && (many.is_string() || many.is_list())) return repeated(many, n.integer());
  if (op == Op::kAdd && left.is_string())
    return error("can only concatenate str (not \"%s\") to str", type_name(right));
  return error("unsupported operand types for %s: '%s' and '%s'", kSigns[static_cast<size_t>(op)].data(),
               type_name(left), type_name(right));
}

// ---- attributes ----

Value Run::attribute(const Value& of, string_view name, const Node* node) {
  constexpr std::pair<Type, Table> kMethods[] = {{Type::kString, Table::kTextMethods},
                                                 {Type::kSequence, Table::kListMethods},
                                                 {Type::kDict, Table::kDictMethods},
                                                 {Type::kLoop, Table::kLoopMethods}};
  if (of.is_undefined()) return undefined_error(of);
  if (of.is(Type::kMacro) && name == "name") return new_text(of.as<Macro>().node->text);
  if (of.is_sequence() && of.sequence().kind == SeqKind::kGroup && (name == "grouper" || name == "list"))
    return of.items()[name == "list" ? 1 : 0];
  for (const auto& [type, table] : kMethods) {
    const Function* method = of.is(type) && (!of.is_sequence() || of.is_list()) ? find_function(table, name) : nullptr;
    if (method != nullptr) return {Type::kFunction, heap.make<Bound>(method, of)};
  }
  if (of.is(Type::kLoop)) return loop_attribute(of.as<Loop>(), name, node);
  const Value* found = of.is_dict() || of.is(Type::kNamespace) ? of.dict().find(name) : nullptr;
  return found != nullptr ? *found : Value::undefined(node);
}

Value Run::item(const Value& of, const Value& key, const Node* node) {
  if (of.is_undefined()) return undefined_error(of);
  const Value* found = of.is_dict() && can_be_key(key) ? of.dict().find(key) : nullptr;
  if (found != nullptr) return *found;
  if (key.is_integer() && (of.is_string() || (of.is_sequence() && of.sequence().has_items()))) {
    const int64_t n = length_of(of), at = key.integer() < 0 ? key.integer() + n : key.integer();
    if (at < 0 || at >= n) return Value::undefined(node);
    return of.is_string() ? sliced(of, Value::integer(at), Value::integer(at + 1), Value::none())
                          : of.items()[static_cast<size_t>(at)];
  }
  return key.is_string() ? attribute(of, key.view(), node) : Value::undefined(node);
}

// ---- calls ----

std::optional<Value> Args::take(string_view name) {
  const auto at = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  if (at == named.end()) return {};
  const Value value = at->second;
  named.erase(at);
  return value;
}

// Whether the argument is, or was made, what a parameter of this kind takes.
bool Run::convert(char kind, Value& value) {
  if (kind == 't') value = text_of(value);
  if (kind == 'o' && !is_true(value)) value = new_list();
  if (kind == 'o' || kind == 'l') value = items_of(value);
  return kind == 's'   ? value.is_string()
         : kind == 'i' ? value.is_integer()
         : kind == 'n' ? value.is_number()
         : kind == 'd' ? value.is_dict()
                       : true;
}

Value Run::call(const Function& function, Args& args) {
  const auto wrong = [&](const char* what, const char* which = "") {
    return error("%s() %s%s", short_name(function.name).c_str(), what, which);
  };
  const size_t n_given = args.size();
  size_t n = 0;
  string_view rest = function.params;
  for (; !rest.empty() && rest != "*" && !failed(); ++n) {
    const string_view param = take_word(rest);
    const size_t colon = param.find(':');
    const char kind = param[colon + 1];
    const bool is_positional = n < n_given, may_miss = param.ends_with('?');
    const std::optional<Value> named = args.take(param.substr(0, colon));
    if (is_positional ? named.has_value() : !named.has_value() && !may_miss) return wrong("got wrong arguments");
    if (!is_positional) args.list.push_back(named.value_or(Value()));
    Value& value = args.list[n];
    if (may_miss && value.is_none() && kind != 'a') value = Value();
    if ((may_miss && value.is_undefined()) || convert(kind, value)) continue;
    return value.is_undefined() ? undefined_error(value) : wrong("takes no ", type_name(value));
  }
  if (rest != "*" && (args.size() > n || !args.named.empty())) return wrong("got an argument that it does not take");
  return failed() ? Value() : function.run(*this, args);
}

Value Run::call(Table table, string_view name, const Function* function, Args& args) {
  if (function != nullptr) return call(*function, args);
  return error("there is no %s '%s'", table == Table::kTests ? "test" : "filter", short_name(name).c_str());
}

}  // namespace weir::jinja
