// Runs templates: statements, and expressions as Python evaluates what jinja2 compiles them to.
#include "text/jinja/run.h"

#include <algorithm>
#include <cstdarg>

#include "core/c_format.h"

namespace weir::jinja {

using std::string_view;

// A scope, and optionally a text, that count until the end of a block.
struct Run::Inside {
  Inside(Run& of, Scope* scope, Str* out = nullptr) : run(of), old_scope(of.scope_), old_out(of.out_) {
    run.scope_ = scope;
    if (out != nullptr) run.out_ = out;
  }
  ~Inside() {
    run.scope_ = old_scope;
    run.out_ = old_out;
  }
  Run& run;
  Scope* old_scope;
  Str* old_out;
};

struct Run::Depth {
  explicit Depth(Run& of) : run(of) {
    if (++run.depth_ > kMaxDepth) run.refuse(WEIR_ERR_UNSUPPORTED, "expressions or macros are nested too deeply");
  }
  ~Depth() { --run.depth_; }
  Run& run;
};

Status render(const Template& from, Heap& heap, std::span<const Variable> variables, int64_t unix_time,
              RenderedText& out) {
  heap.n_steps = 0;
  return Run(from, heap, unix_time).render(variables, out);
}

Status Run::render(std::span<const Variable> variables, RenderedText& out) {
  Scope *globals = new_scope(nullptr), *given = new_scope(globals);
  const auto add = [&](Scope* scope, string_view name, const Value& value) {
    const auto id = template_.names_.find(name);
    if (id == template_.names_.end()) return;
    const Inside inside(*this, scope);
    define(id->second, value);
  };
  const auto table = functions(Table::kGlobals);
  for (uint32_t i = 0; i < table.size(); ++i) add(globals, table[i].name, Value::function(i));
  for (const Variable& variable : variables) add(given, variable.name, variable.value);
  const Str* text = captured(template_.body_, given);
  spend(0);
  WEIR_TRY(status_);
  RenderedText made(out.text.get_allocator().resource());
  made.text.assign(text->text);
  made.said.assign(text->said.begin(), text->said.end());
  out.text.swap(made.text);
  out.said.swap(made.said);
  return {};
}

// ---- errors and limits ----

// For messages.
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

Value Run::undefined_error(const Value& value) {
  const Node* node = value.node();
  if (node == nullptr || node->text.empty()) return error("a value is undefined");
  return error(node->kind == NodeKind::kAttribute ? "there is no attribute '%s'" : "'%s' is undefined",
               short_name(node->text).c_str());
}

// ---- statements ----

Run::Flow Run::exec(Node::List nodes) {
  for (const Node* node : nodes) {
    const Flow flow = exec(*node);
    if (failed() || flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Run::Flow Run::exec(const Node& node) {
  const Depth depth(*this);
  line_ = node.line;
  if (!spend(1)) return Flow::kNext;
  switch (node.kind) {
    case NodeKind::kData:
      return print(node.value);
    case NodeKind::kPrint:
      return print(eval(*node.a));
    case NodeKind::kFor:
      return run_loop(node, eval(*node.b), 0);
    case NodeKind::kIf:
      return exec_if(node);
    case NodeKind::kSet:
      return assign(*node.a, eval(*node.b));
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock: {
      Value text = captured(node.list, new_scope(scope_));
      if (node.b != nullptr && !failed()) text = filtered(*node.b, &text);
      return node.kind == NodeKind::kSetBlock ? assign(*node.a, text) : print(text);
    }
    case NodeKind::kMacro:
      return define(node.name, new_macro(node));
    case NodeKind::kCallBlock: {
      const Value callee = eval(*node.a->a);
      Args args(&heap);
      eval_args(*node.a, args);
      args.named.emplace_back("caller", new_macro(node));
      return print(call(callee, args));
    }
    case NodeKind::kWith: {
      Scope* inner = new_scope(scope_);
      for (size_t i = 0; i < node.params.size(); ++i)
        inner->variables.emplace_back(node.params[i]->name, eval(*node.defaults[i]));
      const Inside inside(*this, inner);
      return exec(node.list);
    }
    default:
      return node.kind == NodeKind::kBreak ? Flow::kBreak : Flow::kContinue;
  }
}

Run::Flow Run::exec_if(const Node& node) {
  const Node* branch = &node;
  while (!is_true(eval(*branch->a))) {
    if (failed()) return Flow::kNext;
    if (branch->others.size() != 1 || branch->others[0]->kind != NodeKind::kIf) return exec(branch->others);
    branch = branch->others[0];
  }
  return failed() ? Flow::kNext : exec(branch->list);
}

Run::Flow Run::print(const Value& value) {
  const size_t n_bytes = value.is_string() ? value.view().size() : 0;
  if (out_->text.size() + n_bytes > kMaxTextBytes) has_room(kMaxTextBytes + 1);
  if (!failed() && spend(n_bytes / kStepBytes)) put_text(*out_, value);
  return Flow::kNext;
}

Run::Flow Run::define(uint32_t name, const Value& value) {
  auto& variables = scope_->variables;
  const auto at =
      std::find_if(variables.begin(), variables.end(), [&](const auto& entry) { return entry.first == name; });
  if (at == variables.end()) {
    variables.emplace_back(name, value);
  } else {
    at->second = value;
  }
  return Flow::kNext;
}

const Value* Run::variable(uint32_t name) const {
  for (const Scope* at = scope_; at != nullptr; at = at->outer) {
    for (const auto& [key, value] : at->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

Run::Flow Run::assign(const Node& target, const Value& value) {
  if (failed()) return Flow::kNext;
  if (target.kind == NodeKind::kName) return define(target.name, value);
  if (target.kind == NodeKind::kNamespaceRef) {
    const Value* space = variable(target.name);
    if (space == nullptr || !space->is(Type::kNamespace)) {
      error("cannot assign to an attribute of what is no namespace");
    } else {
      space->dict().set(new_text(target.text), value);
    }
    return Flow::kNext;
  }
  const Value list = items_of(value);
  if (target.kind != NodeKind::kTuple || list.items().size() != target.list.size())
    error("%zu values to unpack, %zu expected", list.items().size(), target.list.size());
  for (size_t i = 0; i < target.list.size() && !failed(); ++i) assign(*target.list[i], list.items()[i]);
  return Flow::kNext;
}

Str* Run::captured(Node::List nodes, Scope* scope) {
  Str* text = new_text();
  const Inside inside(*this, scope, text);
  exec(nodes);
  return text;
}

// ---- loops ----

// Whether the loop has an item of this index; reads the source as far as that takes.
bool Run::fetch(Loop& loop, size_t index) {
  const auto& source = loop.source->items;
  while (loop.items.size() <= index) {
    if (loop.n_read >= source.size() || !spend(1)) return false;
    const Value item = source[loop.n_read++];
    if (loop.node->c != nullptr) {
      const Inside inside(*this, new_scope(loop.scope));
      assign(*loop.node->a, item);
      const bool passes = is_true(eval(*loop.node->c));
      if (failed()) return false;
      if (!passes) continue;
    }
    loop.items.push_back(item);
  }
  return true;
}

Run::Flow Run::run_loop(const Node& node, const Value& source, uint32_t depth) {
  if (failed()) return Flow::kNext;
  Loop* loop = heap.make<Loop>(&node, scope_, &items_of(source).sequence(), depth, &heap);
  const auto name = template_.names_.find("loop");
  bool has_ended = false;
  Scope* pass = new_scope(loop->scope);
  for (; fetch(*loop, loop->index); ++loop->index) {
    if (pass->is_kept) pass = new_scope(loop->scope);
    pass->variables.clear();
    const Inside inside(*this, pass);
    if (name != template_.names_.end()) define(name->second, {Type::kLoop, loop});
    assign(*node.a, loop->items[loop->index]);
    const Flow flow = exec(node.list);
    has_ended = has_ended || flow == Flow::kNext;
    if (flow == Flow::kBreak || failed()) break;
  }
  // As jinja2 has it: the other block follows unless a pass came to its end, without break and continue.
  if (has_ended || failed()) return Flow::kNext;
  const Inside inside(*this, new_scope(scope_));
  return exec(node.others);
}

Value Run::loop_attribute(Loop& loop, string_view name, const Node* node) {
  constexpr string_view kNames[] = {"index",    "index0",   "first",  "last",     "depth",    "depth0",
                                    "previtem", "nextitem", "length", "revindex", "revindex0"};
  const auto at = std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames);
  const auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  const size_t index = loop.index;
  if (at == 0 || at == 1) return number(index + (at == 0 ? 1 : 0));
  if (at == 2) return Value::boolean(index == 0);
  if (at == 3) return Value::boolean(!fetch(loop, index + 1));
  if (at == 4 || at == 5) return number(loop.depth + (at == 4 ? 1 : 0));
  if (at == 6 && index > 0) return loop.items[index - 1];
  if (at == 7 && fetch(loop, index + 1)) return loop.items[index + 1];
  if (at >= 8 && at <= 10) {
    while (fetch(loop, loop.items.size())) {
    }
    return number(loop.items.size() - (at == 8 ? 0 : index + (at == 10 ? 1 : 0)));
  }
  return Value::undefined(node);
}

// ---- macros and calls ----

Value Run::new_macro(const Node& node) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->outer) scope->is_kept = true;
  return {Type::kMacro, heap.make<Macro>(&node, scope_)};
}

Value Run::call_macro(Macro& macro, Args& args) {
  const Node& node = *macro.node;
  Scope* scope = new_scope(macro.scope);
  const Inside inside(*this, scope);
  const size_t n_params = node.params.size(), n_plain = n_params - node.defaults.size();
  const auto caller_id = template_.names_.find("caller");
  const Value* caller = args.find("caller");
  size_t n_used = caller != nullptr ? 1 : 0;
  if (caller_id != template_.names_.end()) define(caller_id->second, caller != nullptr ? *caller : Value());
  for (size_t i = 0; i < n_params && !failed(); ++i) {
    const Node& param = *node.params[i];
    const Value* value = i < args.size() ? &args[i] : args.find(param.text);
    if (i >= args.size() && value != nullptr && value != caller) ++n_used;
    define(param.name, value != nullptr ? *value
                       : i >= n_plain   ? eval(*node.defaults[i - n_plain])
                                        : Value::undefined(&param));
  }
  if (args.size() > n_params || n_used != args.named.size())
    return error("macro '%s' takes %zu arguments, not these", short_name(node.text).c_str(), n_params);
  return failed() ? Value() : Value(captured(node.list, scope));
}

const Value* Args::find(string_view name) const {
  const auto at = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  return at == named.end() ? nullptr : &at->second;
}

void Run::eval_args(const Node& node, Args& args) {
  for (const Node* arg : node.list) args.list.push_back(eval(*arg));
  for (const auto& [name, value] : node.named) args.named.emplace_back(name, eval(*value));
  if (node.b != nullptr) {
    const Value more = items_of(eval(*node.b));
    args.list.insert(args.list.end(), more.items().begin(), more.items().end());
  }
  if (node.c == nullptr || failed()) return;
  const Value more = eval(*node.c);
  if (!more.is_dict()) return void(error("argument after ** must be a mapping"));
  for (const Dict::Entry& entry : more.dict().entries) {
    if (!entry.key.is_string()) return void(error("keywords must be strings"));
    args.named.emplace_back(entry.key.view(), entry.value);
  }
}

Value Run::call(const Value& callee, Args& args) {
  const Depth depth(*this);
  if (failed()) return {};
  if (callee.is_undefined()) return undefined_error(callee);
  if (callee.is(Type::kFunction))
    return call(functions(Table::kGlobals)[static_cast<size_t>(callee.integer())], Value(), args);
  if (callee.is(Type::kMethod)) return call(*callee.as<Method>().function, callee.as<Method>().self, args);
  if (callee.is(Type::kMacro)) return call_macro(callee.as<Macro>(), args);
  if (!callee.is(Type::kLoop)) return error("'%s' object is not callable", type_name(callee));
  const Loop& loop = callee.as<Loop>();
  if (args.size() != 1 || !args.named.empty()) return error("loop() takes what to iterate over");
  if (!loop.node->is_recursive) return error("the loop has no 'recursive' marker");
  Str* text = new_text();
  const Inside inside(*this, loop.scope, text);
  run_loop(*loop.node, args[0], loop.depth + 1);
  return text;
}

Value Run::call(const Function& function, const Value& self, Args& args) {
  const size_t n_positional = args.size();
  size_t i = 0, n_named = 0;
  args.given = (uint64_t{1} << std::min<size_t>(n_positional, 63)) - 1;
  for (string_view rest = function.params != nullptr ? function.params : ""; !rest.empty(); ++i) {
    const size_t end = std::min(rest.find(','), rest.size());
    const Value* named = args.find(rest.substr(0, end));
    rest.remove_prefix(std::min(rest.size(), end + 1));
    if (i < n_positional ? named != nullptr : named == nullptr && i < function.n_required)
      return error("%s() got wrong arguments", short_name(function.name).c_str());
    if (i >= n_positional) args.list.push_back(named != nullptr ? *named : Value());
    if (named == nullptr) continue;
    ++n_named;
    args.given |= uint64_t{1} << i;
  }
  if (function.params != nullptr && (n_positional > i || n_named != args.named.size()))
    return error("%s() got an argument that it does not take", short_name(function.name).c_str());
  return failed() ? Value() : function.run(*this, self, args);
}

Value Run::call(Table table, uint32_t id, string_view name, const Value& of, Args& args) {
  if (id != kNoFunction) return call(functions(table)[id], of, args);
  return error("there is no %s '%s'", table == Table::kTests ? "test" : "filter", short_name(name).c_str());
}

Value Run::filtered(const Node& node, const Value* captured) {
  const bool is_first = node.a == nullptr || captured == nullptr;
  const Value of = node.a == nullptr ? *captured : is_first ? eval(*node.a) : filtered(*node.a, captured);
  Args args(&heap);
  eval_args(node, args);
  line_ = node.line;
  return failed() ? Value() : call(Table::kFilters, node.name, node.text, of, args);
}

// ---- expressions ----

Value Run::eval(const Node& node) {
  const Depth depth(*this);
  if (!spend(1)) return {};
  line_ = node.line;
  if (node.kind == NodeKind::kConst) return node.value;
  if (node.kind == NodeKind::kFilter) return filtered(node, nullptr);
  if (node.kind == NodeKind::kName) {
    const Value* found = variable(node.name);
    return found != nullptr ? *found : Value::undefined(&node);
  }
  if (node.kind == NodeKind::kCondition) {
    const Node* chosen = is_true(eval(*node.b)) ? node.a : node.c;
    return failed() ? Value() : chosen != nullptr ? eval(*chosen) : Value::undefined(&node);
  }
  if (node.kind == NodeKind::kList || node.kind == NodeKind::kTuple) {
    Seq* list = new_list(node.kind == NodeKind::kTuple ? SeqKind::kTuple : SeqKind::kList);
    for (const Node* item : node.list) list->items.push_back(eval(*item));
    return list;
  }
  if (node.kind == NodeKind::kDict) {
    Dict* dict = new_dict();
    for (size_t i = 0; i + 1 < node.list.size() && !failed(); i += 2) {
      const Value key = eval(*node.list[i]);
      if (!can_be_key(key)) return error("unhashable type: '%s'", type_name(key));
      dict->set(key, eval(*node.list[i + 1]));
    }
    return dict;
  }
  const Value a = eval(*node.a);
  if (failed()) return {};
  if (node.kind == NodeKind::kNot) return Value::boolean(!is_true(a));
  if (node.kind == NodeKind::kAnd || node.kind == NodeKind::kOr)
    return is_true(a) == (node.kind == NodeKind::kOr) ? a : eval(*node.b);
  if (node.kind == NodeKind::kAttribute) return attribute(a, node.text, &node);
  if (node.kind == NodeKind::kCompare) return eval_compare(node, a);
  if (node.kind == NodeKind::kSign && !a.is_number() && !a.is_undefined())
    return error("bad operand type for a sign: '%s'", type_name(a));
  if (node.kind == NodeKind::kSign) return binary(Op::kMul, Value::integer(node.op == Op::kSub ? -1 : 1), a);
  if (node.kind == NodeKind::kSlice) {
    Value bounds[3];
    for (size_t i = 0; i < 3; ++i) bounds[i] = node.list[i] != nullptr ? eval(*node.list[i]) : Value::none();
    return failed() ? Value() : sliced(a, bounds[0], bounds[1], bounds[2]);
  }
  if (node.kind == NodeKind::kCall || node.kind == NodeKind::kTest) {
    Args args(&heap);
    eval_args(node, args);
    line_ = node.line;
    if (node.kind == NodeKind::kCall) return call(a, args);
    return Value::boolean(is_true(call(Table::kTests, node.name, node.text, a, args)));
  }
  const Value b = eval(*node.b);
  line_ = node.line;
  if (failed()) return {};
  return node.kind == NodeKind::kItem ? item(a, b, &node) : binary(node.op, a, b);
}

Value Run::attribute(const Value& of, string_view name, const Node* node) {
  if (of.is_undefined()) return undefined_error(of);
  if (of.is(Type::kLoop) && name != "cycle") return loop_attribute(of.as<Loop>(), name, node);
  if (of.is(Type::kMacro) && name == "name") return new_text(of.as<Macro>().node->text);
  if (of.is_sequence() && of.sequence().kind == SeqKind::kGroup && (name == "grouper" || name == "list"))
    return of.items()[name == "list" ? 1 : 0];
  const auto table = methods(of.type());
  const uint32_t method = find_function(table, name);
  if (method != kNoFunction && (!of.is_sequence() || of.is_list()))
    return {Type::kMethod, heap.make<Method>(of, &table[method])};
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

}  // namespace weir::jinja
