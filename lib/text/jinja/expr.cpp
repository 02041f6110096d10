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
