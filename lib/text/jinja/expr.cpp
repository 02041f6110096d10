// Evaluates expressions, as Python does what jinja2 compiles them to.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "core/c_format.h"
#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {

using std::string_view;

// ---- errors and limits ----

Value Run::refuse(weir_status code, string_view message) {
  if (!failed())
    status_ = fail(code, WEIR_TEMPLATE_LINE "%.*s", line_, static_cast<int>(std::min<size_t>(message.size(), 900)),
                   message.data());
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

bool Run::spend(uint64_t n_steps) {
  heap.n_steps += n_steps;
  if (failed()) return false;
  if (heap.is_too_deep) refuse(WEIR_ERR_UNSUPPORTED, "values are nested too deeply");
  if (heap.n_steps > kMaxSteps) refuse(WEIR_ERR_UNSUPPORTED, "the template runs for too long");
  if (heap.bytes() > kMaxHeapBytes) refuse(WEIR_ERR_UNSUPPORTED, "the template takes too much memory");
  return !failed();
}

bool Run::has_room(uint64_t n_bytes) {
  if (n_bytes > kMaxTextBytes) refuse(WEIR_ERR_UNSUPPORTED, "the template makes a text that is too long");
  return spend(n_bytes / kStepBytes);
}

struct Run::Depth {
  explicit Depth(Run& of) : run(of) {
    if (++run.depth_ > kMaxDepth) run.refuse(WEIR_ERR_UNSUPPORTED, "expressions or macros are nested too deeply");
  }
  ~Depth() { --run.depth_; }
  Run& run;
};

Value Run::undefined_error(const Value& value) {
  const Node* node = value.node();
  if (node == nullptr || node->text.empty()) return error("a value is undefined");
  const int n = static_cast<int>(std::min<size_t>(node->text.size(), 100));
  return error(node->kind == NodeKind::kAttribute ? "there is no attribute '%.*s'" : "'%.*s' is undefined", n,
               node->text.data());
}

// ---- variables and attributes ----

const Value* Run::variable(uint32_t name) const {
  for (const Value* at = &scope_; at->is(Type::kScope); at = &at->as<Scope>().outer) {
    for (const auto& [key, value] : at->as<Scope>().variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

Value Run::attribute(const Value& of, string_view name, const Node* node) {
  const Value* found = nullptr;
  switch (of.type()) {
    case Type::kUndefined:
      return undefined_error(of);
    case Type::kNamespace:
      found = of.dict().find(name);
      return found != nullptr ? *found : Value::undefined(node);
    case Type::kLoop:
      return loop_attribute(of.as<Loop>(), name, node);
    case Type::kMacro:
      if (name == "name") return make_text(of.as<Macro>().node->text);
      break;
    case Type::kCycler:
      if (name == "current") return of.as<Cycler>().items[of.as<Cycler>().at];
      break;
    case Type::kSequence:
      if (of.sequence().kind == SeqKind::kGroup && (name == "grouper" || name == "list"))
        return of.sequence().items[name == "list" ? 1 : 0];
      break;
    default:
      break;
  }
  const auto methods = method_table(of.type());
  const uint32_t method = find_function(methods, name);
  if (method != kNoFunction && !(of.is_sequence() && of.sequence().kind > SeqKind::kGroup))
    return {Type::kMethod, heap.make<Method>(of, &methods[method])};
  if (of.is_dict()) found = of.dict().find(name);
  return found != nullptr ? *found : Value::undefined(node);
}

Value Run::item(const Value& of, const Value& key, const Node* node) {
  if (of.is_undefined()) return undefined_error(of);
  if (of.is_dict() && can_be_key(key)) {
    const Value* found = of.dict().find(key);
    if (found != nullptr) return *found;
  }
  if (key.is_integer() && of.is_sequence() && of.sequence().has_items()) {
    const auto& items = of.sequence().items;
    const int64_t n = static_cast<int64_t>(items.size()), at = key.integer() < 0 ? key.integer() + n : key.integer();
    if (at >= 0 && at < n) return items[static_cast<size_t>(at)];
  }
  if (key.is_integer() && of.is_string()) {
    const int64_t at = key.integer();
    const Value end = at == -1 ? Value::none() : Value::integer(at + 1);
    const Value found = sliced(of, key, end, Value::none());
    if (!found.view().empty()) return found;
  }
  return key.is_string() ? attribute(of, key.view(), node) : Value::undefined(node);
}

Value Run::loop_attribute(Loop& loop, string_view name, const Node* node) {
  const auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  const auto left = [&] {
    for (size_t i = loop.items.size(); fetch(loop, i); ++i) {
    }
    return loop.items.size() - loop.index;
  };
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "first") return Value::boolean(loop.index == 0);
  if (name == "last") return Value::boolean(!fetch(loop, loop.index + 1));
  if (name == "length") return number(left() + loop.index);
  if (name == "revindex") return number(left());
  if (name == "revindex0") return number(left() - 1);
  if (name == "depth") return number(loop.depth + 1);
  if (name == "depth0") return number(loop.depth);
  if (name == "previtem") return loop.index > 0 ? loop.items[loop.index - 1] : Value::undefined(node);
  if (name == "nextitem") return fetch(loop, loop.index + 1) ? loop.items[loop.index + 1] : Value::undefined(node);
  const auto methods = method_table(Type::kLoop);
  const uint32_t method = find_function(methods, name);
  if (method == kNoFunction) return Value::undefined(node);
  return {Type::kMethod, heap.make<Method>(Value(Type::kLoop, &loop), &methods[method])};
}

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

// ---- nodes ----

Value Run::eval(const Node& node) {
  const Depth depth(*this);
  if (!spend(1)) return {};
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kConst:
      return node.value;
    case NodeKind::kName: {
      const Value* found = variable(node.name);
      return found != nullptr ? *found : Value::undefined(&node);
    }
    case NodeKind::kList:
    case NodeKind::kTuple:
    case NodeKind::kDict:
      return eval_list(node);
    case NodeKind::kNot: {
      const Value value = eval(*node.a);
      return Value::boolean(!is_true(value));
    }
    case NodeKind::kNeg:
    case NodeKind::kPos: {
      const Value value = eval(*node.a);
      if (value.is_undefined()) return failed() ? Value() : undefined_error(value);
      if (!value.is_number()) return error("bad operand type for a sign: '%s'", type_name(value));
      if (node.kind == NodeKind::kNeg && value.is(Type::kFloat)) return Value::real(-value.real(), value.is_said());
      return arithmetic(node.kind == NodeKind::kNeg ? Op::kSub : Op::kAdd, Value::integer(0), value);
    }
    case NodeKind::kBinary: {
      const Value left = eval(*node.a), right = eval(*node.b);
      line_ = node.line;
      return failed() ? Value() : binary(node.op, left, right);
    }
    case NodeKind::kConcat:
      return concat(node);
    case NodeKind::kAnd:
    case NodeKind::kOr: {
      Value left = eval(*node.a);
      return is_true(left) == (node.kind == NodeKind::kOr) ? left : eval(*node.b);
    }
    case NodeKind::kCompare:
      return eval_compare(node);
    case NodeKind::kCondition:
      if (is_true(eval(*node.b))) return eval(*node.a);
      return node.c != nullptr ? eval(*node.c) : Value::undefined(&node);
    case NodeKind::kAttribute: {
      const Value of = eval(*node.a);
      return failed() ? Value() : attribute(of, node.text, &node);
    }
    case NodeKind::kItem: {
      const Value of = eval(*node.a), key = eval(*node.b);
      return failed() ? Value() : item(of, key, &node);
    }
    case NodeKind::kSlice:
      return eval_slice(node);
    case NodeKind::kCall:
      return eval_call(node);
    case NodeKind::kFilter:
      return filter_node(node, nullptr);
    case NodeKind::kTest: {
      const Value of = eval(*node.a);
      Args args(&heap);
      eval_args(node, args);
      return failed() ? Value() : Value::boolean(test(node.name, node.text, of, args));
    }
    default:
      return error("not an expression");
  }
}

Value Run::eval_list(const Node& node) {
  if (node.kind == NodeKind::kDict) {
    Dict* dict = heap.make<Dict>(&heap);
    const Value kept = dict;
    for (size_t i = 0; i + 1 < node.list.size() && !failed(); i += 2) {
      const Value key = eval(*node.list[i]), value = eval(*node.list[i + 1]);
      if (!can_be_key(key)) return error("unhashable type: '%s'", type_name(key));
      dict->set(key, value);
    }
    return kept;
  }
  Seq* list = make_list(node.kind == NodeKind::kTuple ? SeqKind::kTuple : SeqKind::kList);
  const Value kept = list;
  for (const Node* item : node.list) list->items.push_back(eval(*item));
  return kept;
}

Value Run::concat(const Node& node) {
  Str* text = make_text();
  const Value kept = text;
  for (const Node* part : node.list) {
    const Value value = eval(*part);
    if (failed() || !has_room(text->text.size() + (value.is_string() ? value.view().size() : 0))) return {};
    put_text(*text, value);
  }
  return kept;
}

Value Run::eval_compare(const Node& node) {
  Value left = eval(*node.a);
  for (const Node* operand : node.list) {
    Value right = eval(*operand->a);
    line_ = operand->line;
    if (failed() || !holds(operand->op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Run::eval_slice(const Node& node) {
  const Value of = eval(*node.a);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) bounds[i] = node.list[i] != nullptr ? eval(*node.list[i]) : Value::none();
  return failed() ? Value() : sliced(of, bounds[0], bounds[1], bounds[2]);
}

void Run::eval_args(const Node& node, Args& args) {
  for (const Node* arg : node.list) args.list.push_back(eval(*arg));
  for (const auto& [name, value] : node.named) args.named.emplace_back(name, eval(*value));
  if (node.b != nullptr) {
    const Value more = items_of(eval(*node.b));
    if (failed()) return;
    args.list.insert(args.list.end(), more.sequence().items.begin(), more.sequence().items.end());
  }
  if (node.c == nullptr || failed()) return;
  const Value named = eval(*node.c);
  if (!named.is_dict()) return void(error("argument after ** must be a mapping"));
  for (const Dict::Entry& entry : named.dict().entries) {
    if (!entry.key.is_string()) return void(error("keywords must be strings"));
    args.named.emplace_back(entry.key.view(), entry.value);
  }
  args.keywords = named;
}

Value Run::eval_call(const Node& node) {
  const Value callee = eval(*node.a);
  Args args(&heap);
  eval_args(node, args);
  line_ = node.line;
  return failed() ? Value() : call(callee, args);
}

Value Run::filter_node(const Node& node, const Value* captured) {
  const Value of = node.a != nullptr && (node.a->kind != NodeKind::kFilter || captured == nullptr) ? eval(*node.a)
                   : node.a != nullptr   ? filter_node(*node.a, captured)
                   : captured != nullptr ? *captured
                                         : Value();
  Args args(&heap);
  eval_args(node, args);
  line_ = node.line;
  return failed() ? Value() : filter(node.name, node.text, of, args);
}

Value Run::call(const Value& callee, Args& args) {
  const Depth depth(*this);
  if (failed()) return {};
  switch (callee.type()) {
    case Type::kUndefined:
      return undefined_error(callee);
    case Type::kFunction:
      return call(global_table()[static_cast<size_t>(callee.integer())], Value(), args);
    case Type::kMethod:
      return call(*callee.as<Method>().function, callee.as<Method>().self, args);
    case Type::kMacro:
      return call_macro(callee.as<Macro>(), args);
    case Type::kLoop:
      if (args.size() != 1 || !args.named.empty()) return error("loop() takes what to iterate over");
      return call_loop(callee.as<Loop>(), args[0]);
    case Type::kJoiner: {
      Cycler& joiner = callee.as<Cycler>();
      return joiner.at++ == 0 ? Value(make_text()) : joiner.items[0];
    }
    default:
      return error("'%s' object is not callable", type_name(callee));
  }
}

Value Run::call(const Function& function, const Value& self, Args& args) {
  if (failed()) return {};
  if (function.params == nullptr) {
    args.given = args.size() < 32 ? (uint32_t{1} << args.size()) - 1 : UINT32_MAX;
    return function.run(*this, self, args);
  }
  const int n_name = static_cast<int>(function.name.size());
  size_t i = 0, n_named = 0;
  const size_t n_positional = args.size();
  for (string_view rest = function.params; !rest.empty(); ++i) {
    const size_t end = std::min(rest.find(','), rest.size());
    const Value* named = args.find(rest.substr(0, end));
    if (named != nullptr) ++n_named;
    const bool is_given = i < n_positional || named != nullptr;
    if ((i < n_positional && named != nullptr) || (!is_given && i < function.n_required))
      return error("%.*s() got wrong arguments", n_name, function.name.data());
    if (i >= n_positional) args.list.push_back(named != nullptr ? *named : Value());
    if (is_given) args.given |= uint32_t{1} << i;
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  if (n_positional > i || n_named != args.named.size())
    return error("%.*s() got an argument that it does not take", n_name, function.name.data());
  return function.run(*this, self, args);
}

Value Run::filter(uint32_t id, string_view name, const Value& of, Args& args) {
  if (id == kNoFunction)
    return error("there is no filter '%.*s'", static_cast<int>(std::min<size_t>(name.size(), 60)), name.data());
  return call(filter_table()[id], of, args);
}

bool Run::test(uint32_t id, string_view name, const Value& of, Args& args) {
  if (id == kNoFunction) {
    error("there is no test '%.*s'", static_cast<int>(std::min<size_t>(name.size(), 60)), name.data());
    return false;
  }
  return is_true(call(test_table()[id], of, args));
}

}  // namespace weir::jinja
