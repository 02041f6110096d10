// Runs templates: statements, and expressions as Python evaluates what jinja2 compiles them to.
#include "text/jinja/run.h"

#include <algorithm>

namespace weir::jinja {

using std::string_view;

class Interpreter final : public Run {
 public:
  Interpreter(const Template& from, Heap& memory, int64_t unix_seconds) : Run(memory, unix_seconds), template_(from) {}

  Status render(std::span<const Variable> variables, RenderedText& out) {
    scope_ = new_scope(nullptr);
    for (const Function& function : functions(Table::kGlobals))
      define(function.name, {Type::kFunction, heap.make<Bound>(&function, Value())});
    scope_ = new_scope(scope_);
    for (const Variable& variable : variables) define(variable.name, variable.value);
    const Str* text = captured(template_.body_->list, scope_);
    spend(0);
    WEIR_TRY(status_);
    RenderedText made(out.text.get_allocator().resource());
    made.text.assign(text->text);
    for (size_t at = 0, end = 0; (at = text->said.find('\1', end)) != string_view::npos;) {
      end = std::min(text->said.find('\0', at), text->said.size());
      made.said.push_back({at, end});
    }
    out.text.swap(made.text);
    out.said.swap(made.said);
    return {};
  }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // ---- variables ----

  Scope* new_scope(Scope* outer) {
    return heap.make<Scope>(outer, std::pmr::vector<std::pair<uint32_t, Value>>(&heap));
  }

  Flow define(uint32_t name, const Value& value) {
    auto& variables = scope_->variables;
    heap.n_steps += variables.size() / kStepItems;
    const auto is_it = [&](const auto& variable) { return variable.first == name; };
    const auto at = std::find_if(variables.begin(), variables.end(), is_it);
    at == variables.end() ? void(variables.emplace_back(name, value)) : void(at->second = value);
    return Flow::kNext;
  }
  void define(string_view name, const Value& value) {
    const auto id = template_.names_.find(name);
    if (id != template_.names_.end()) define(id->second, value);
  }

  Value variable(const Node& node) const {
    for (const Scope* at = scope_; at != nullptr; at = at->outer) {
      heap.n_steps += at->variables.size() / kStepItems;
      for (const auto& [key, value] : at->variables) {
        if (key == node.name) return value;
      }
    }
    return Value::undefined(&node);
  }

  Flow assign(const Node& target, const Value& value) {
    if (failed()) return Flow::kNext;
    if (target.kind == NodeKind::kName) return define(target.name, value);
    if (target.kind == NodeKind::kNamespaceRef) {
      const Value space = variable(target);
      if (!space.is(Type::kNamespace)) return error("cannot assign to an attribute of what is no namespace"), Flow();
      return space.dict().set(new_text(target.text), value), Flow();
    }
    const Value list = items_of(value);
    if (list.items().size() != target.list.size())
      error("%zu values to unpack, %zu expected", list.items().size(), target.list.size());
    for (size_t i = 0; i < target.list.size() && !failed(); ++i) assign(*target.list[i], list.items()[i]);
    return Flow::kNext;
  }

  // ---- statements ----

  // Starts with a node, inside of others.
  bool begin(const Node& node) {
    line_ = node.line;
    if (depth_ > kMaxDepth) refuse(WEIR_ERR_UNSUPPORTED, "expressions or macros are nested too deeply");
    return spend(1);
  }

  Flow exec(const Node::List& nodes, Scope* scope) {
    const Within inside(scope_, scope);
    for (const Node* node : nodes) {
      const Flow flow = exec(*node);
      if (failed() || flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  // What the nodes print, with this scope.
  Str* captured(const Node::List& nodes, Scope* scope) {
    Str* text = new_text();
    const Within inside(out_, text);
    exec(nodes, scope);
    return text;
  }

  Flow print(const Value& value) {
    if (!failed()) add(*out_, *text_of(value));
    return Flow::kNext;
  }

  Flow exec(const Node& node) {
    const Within inside(depth_, depth_ + 1);
    if (!begin(node)) return Flow::kNext;
    using enum NodeKind;
    if (node.kind == kData) return print(node.value);
    if (node.kind == kPrint) return print(eval(*node.a));
    if (node.kind == kFor) return run_loop(node, eval(*node.b), 0);
    if (node.kind == kIf) return exec_if(node);
    if (node.kind == kSet) return assign(*node.a, eval(*node.b));
    if (node.kind == kMacro) return define(node.name, new_macro(node));
    if (node.kind == kBreak || node.kind == kContinue) return node.kind == kBreak ? Flow::kBreak : Flow::kContinue;
    if (node.kind == kWith) {
      Scope* inner = new_scope(scope_);
      for (const auto& [name, value, target] : node.named) inner->variables.emplace_back(target->name, eval(*value));
      return exec(node.list, inner);
    }
    if (node.kind == kCallBlock) {
      const Value callee = eval(*node.a->a);
      Args args(&heap);
      eval_args(*node.a, args);
      args.named.emplace_back("caller", new_macro(node));
      return print(call(callee, args));
    }
    captured_ = captured(node.list, new_scope(scope_));
    const Value text = eval(*node.b);
    return node.kind == kSetBlock ? assign(*node.a, text) : print(text);
  }

  Flow exec_if(const Node& node) {
    const Node* branch = &node;
    while (!is_true(eval(*branch->a))) {
      if (failed()) return Flow::kNext;
      if (branch->others.size() != 1 || branch->others[0]->kind != NodeKind::kIf) return exec(branch->others, scope_);
      branch = branch->others[0];
    }
    return failed() ? Flow::kNext : exec(branch->list, scope_);
  }

  // ---- loops ----

  // Whether the loop has an item of this index; reads the source as far as that takes.
  bool fetch(Loop& loop, size_t index) {
    const auto& source = loop.source->items;
    while (loop.items.size() <= index) {
      if (loop.n_read >= source.size() || !spend(1)) return false;
      const Value item = source[loop.n_read++];
      if (loop.node->c != nullptr) {
        const Within inside(scope_, new_scope(loop.scope));
        assign(*loop.node->a, item);
        const bool passes = is_true(eval(*loop.node->c));
        if (failed()) return false;
        if (!passes) continue;
      }
      loop.items.push_back(item);
    }
    return true;
  }

  Flow run_loop(const Node& node, const Value& source, size_t depth) {
    if (failed()) return Flow::kNext;
    const Seq* items = &items_of(source).sequence();
    Loop* loop = heap.make<Loop>(&node, scope_, items, std::pmr::vector<Value>(&heap), depth);
    bool has_ended = false;
    Scope* pass = new_scope(loop->scope);
    for (; fetch(*loop, loop->index); ++loop->index) {
      if (pass->is_kept) pass = new_scope(loop->scope);
      pass->variables.clear();
      const Within inside(scope_, pass);
      define("loop", {Type::kLoop, loop});
      assign(*node.a, loop->items[loop->index]);
      const Flow flow = exec(node.list, pass);
      has_ended = has_ended || flow == Flow::kNext;
      if (flow == Flow::kBreak || failed()) break;
    }
    // As jinja2 has it: the other block follows unless a pass came to its end, without break and continue.
    return has_ended || failed() ? Flow::kNext : exec(node.others, new_scope(scope_));
  }

  Value loop_attribute(Loop& loop, string_view name, const Node* node) override {
    const size_t index = loop.index, depth = loop.depth;
    const auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
    const auto length = [&] {
      while (fetch(loop, loop.items.size())) {
      }
      return loop.items.size();
    };
    if (name == "index") return number(index + 1);
    if (name == "index0") return number(index);
    if (name == "first") return Value::boolean(index == 0);
    if (name == "last") return Value::boolean(!fetch(loop, index + 1));
    if (name == "length") return number(length());
    if (name == "revindex") return number(length() - index);
    if (name == "revindex0") return number(length() - index - 1);
    if (name == "previtem" && index > 0) return loop.items[index - 1];
    if (name == "nextitem" && fetch(loop, index + 1)) return loop.items[index + 1];
    if (name == "depth") return number(depth + 1);
    return name == "depth0" ? number(depth) : Value::undefined(node);
  }

  // ---- macros and calls ----

  Value new_macro(const Node& node) {
    for (Scope* scope = scope_; scope != nullptr; scope = scope->outer) scope->is_kept = true;
    return {Type::kMacro, heap.make<Macro>(&node, scope_)};
  }

  Value call_macro(const Macro& macro, Args& args) {
    const Node& node = *macro.node;
    const Within inside(scope_, new_scope(macro.scope));
    size_t n = 0;
    define("caller", args.take("caller").value_or(Value()));
    for (const auto& [name, otherwise, target] : node.named) {
      const std::optional<Value> given = n < args.size() ? args[n] : args.take(name);
      heap.n_steps += args.named.size() / kStepItems;
      define(target->name, given.has_value()      ? *given
                           : otherwise != nullptr ? eval(*otherwise)
                                                  : Value::undefined(target));
      ++n;
    }
    Seq* more = new_list({}, SeqKind::kTuple);
    if (args.size() > n) more->items.assign(args.list.begin() + static_cast<std::ptrdiff_t>(n), args.list.end());
    if ((!more->items.empty() && !node.reads_varargs) || (!args.named.empty() && !node.reads_kwargs))
      return error("macro '%s' takes %zu arguments, not these", short_name(node.text).c_str(), n);
    if (node.reads_varargs) define("varargs", more);
    if (node.reads_kwargs) define("kwargs", dict_of(args));
    return failed() ? Value() : Value(captured(node.list, scope_));
  }

  Value call(const Value& callee, Args& args) {
    const Within inside(depth_, depth_ + 1);
    if (failed()) return {};
    if (callee.is_undefined()) return undefined_error(callee);
    if (callee.is(Type::kMacro)) return call_macro(callee.as<Macro>(), args);
    if (callee.is(Type::kFunction)) {
      const Bound& bound = callee.as<Bound>();
      if (!bound.self.is_undefined()) args.list.insert(args.list.begin(), bound.self);
      return Run::call(*bound.function, args);
    }
    if (!callee.is(Type::kLoop)) return error("'%s' object is not callable", type_name(callee));
    const Loop& loop = callee.as<Loop>();
    if (args.size() != 1 || !args.named.empty()) return error("loop() takes what to iterate over");
    if (!loop.node->is_recursive) return error("the loop has no 'recursive' marker");
    Str* text = new_text();
    const Within printing(out_, text);
    const Within scope(scope_, loop.scope);
    run_loop(*loop.node, args[0], loop.depth + 1);
    return text;
  }

  void eval_args(const Node& node, Args& args) {
    for (const Node* arg : node.list) args.list.push_back(eval(*arg));
    for (const auto& [name, value, target] : node.named) args.named.emplace_back(name, eval(*value));
    if (node.b != nullptr) {
      const Value more = items_of(eval(*node.b));
      if (!spend(more.items().size() / kStepItems)) return;
      args.list.insert(args.list.end(), more.items().begin(), more.items().end());
    }
    if (node.c == nullptr || failed()) return;
    const Value more = eval(*node.c);
    if (!more.is_dict()) return void(error("argument after ** must be a mapping"));
    for (const Dict::Entry& entry : more.dict().entries) {
      if (!entry.key.is_string()) return void(error("keywords must be strings"));
      if (!spend(1)) return;
      args.named.emplace_back(entry.key.view(), entry.value);
    }
  }

  // ---- expressions ----

  Value eval(const Node& node) {
    const Within inside(depth_, depth_ + 1);
    if (!begin(node)) return {};
    using enum NodeKind;
    if (node.kind == kConst) return node.value;
    if (node.kind == kCaptured) return captured_;
    if (node.kind == kName) return variable(node);
    if (node.kind == kList || node.kind == kTuple || node.kind == kDict) return eval_display(node);
    if (node.kind == kCondition) {
      const Node* chosen = is_true(eval(*node.b)) ? node.a : node.c;
      return failed() ? Value() : chosen != nullptr ? eval(*chosen) : Value::undefined(&node);
    }
    const Value a = eval(*node.a);
    if (failed()) return {};
    if (node.kind == kNot) return Value::boolean(!is_true(a));
    if (node.kind == kAnd || node.kind == kOr) return is_true(a) == (node.kind == kOr) ? a : eval(*node.b);
    if (node.kind == kAttribute) return attribute(a, node.text, &node);
    if (node.kind == kCall || node.kind == kFilter || node.kind == kTest) return eval_call(node, a);
    if (node.kind == kBinary || node.kind == kItem) return eval_binary(node, a);
    if (node.kind == kSlice) {
      Value bounds[3];
      for (size_t i = 0; i < 3; ++i) bounds[i] = node.list[i] != nullptr ? eval(*node.list[i]) : Value::none();
      return failed() ? Value() : sliced(a, bounds[0], bounds[1], bounds[2]);
    }
    if (!a.is_number() && !a.is_undefined()) return error("bad operand type for a sign: '%s'", type_name(a));
    return binary(Op::kMul, Value::integer(node.op == Op::kSub ? -1 : 1), a);
  }

  Value eval_display(const Node& node) {
    Seq* list = new_list({}, node.kind == NodeKind::kTuple ? SeqKind::kTuple : SeqKind::kList);
    for (const Node* item : node.list) list->items.push_back(eval(*item));
    if (node.kind != NodeKind::kDict || failed()) return list;
    Dict* dict = new_dict();
    for (size_t i = 0; i + 1 < list->items.size(); i += 2) {
      if (!can_be_key(list->items[i])) return error("unhashable type: '%s'", type_name(list->items[i]));
      dict->set(list->items[i], list->items[i + 1]);
    }
    return dict;
  }

  Value eval_call(const Node& node, const Value& of) {
    Args args(&heap);
    if (node.kind != NodeKind::kCall) args.list.push_back(of);
    eval_args(node, args);
    line_ = node.line;
    if (node.kind == NodeKind::kCall) return call(of, args);
    if (node.kind == NodeKind::kFilter) return Run::call(Table::kFilters, node.text, node.function, args);
    return Value::boolean(is_true(Run::call(Table::kTests, node.text, node.function, args)));
  }

  Value eval_binary(const Node& node, const Value& a) {
    if (node.is_chained && !is_true(a)) return a;
    // A chain such as a < b < c goes on with what its last comparison had on the right.
    const Value left = node.is_chained ? chained_ : a, right = eval(*node.b);
    line_ = node.line;
    if (failed()) return {};
    chained_ = right;
    return node.kind == NodeKind::kItem ? item(left, right, &node) : binary(node.op, left, right);
  }

  const Template& template_;
  Scope* scope_ = nullptr;
  Str* out_ = nullptr;
  Value captured_;  // what filters of a block follow
  Value chained_;   // the right side of the last comparison
  uint32_t depth_ = 0;
};

Status render(const Template& from, Heap& heap, std::span<const Variable> variables, int64_t unix_time,
              RenderedText& out) {
  const Counting counting(heap);
  heap.n_steps = 0;
  return Interpreter(from, heap, unix_time).render(variables, out);
}

}  // namespace weir::jinja
