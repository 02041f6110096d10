// Runs statements: scopes, loops and macros.
#include <algorithm>

#include "text/jinja/run.h"

namespace weir::jinja {

using std::string_view;

// A scope, and optionally a text, that count until the end of a block.
struct Run::Inside {
  Inside(Run& of, Value scope, Str* out = nullptr) : run(of), old_scope(std::move(scope)), old_out(of.out_) {
    std::swap(run.scope_, old_scope);
    if (out != nullptr) run.out_ = out;
  }
  ~Inside() {
    std::swap(run.scope_, old_scope);
    run.out_ = old_out;
  }
  Run& run;
  Value old_scope;
  Str* old_out;
};

Status Run::render(std::span<const Variable> variables, RenderedText& out) {
  const Value globals = new_scope(Value::none());
  const Value given = new_scope(globals);
  Str* text = make_text();
  const Value kept = text;
  const auto add = [&](const Value& scope, string_view name, const Value& value) {
    const auto id = template_.names_.find(name);
    if (id == template_.names_.end()) return;
    auto& list = scope.as<Scope>().variables;
    std::erase_if(list, [&](const auto& entry) { return entry.first == id->second; });
    list.emplace_back(id->second, value);
  };
  const auto functions = global_table();
  for (uint32_t i = 0; i < functions.size(); ++i) add(globals, functions[i].name, Value::function(i));
  for (const Variable& variable : variables) add(given, variable.name, variable.value);
  const Inside inside(*this, given, text);
  exec(template_.body_);
  spend(0);
  WEIR_TRY(status_);
  RenderedText made(out.text.get_allocator().resource());
  made.text.assign(text->text);
  made.said.assign(text->said.begin(), text->said.end());
  out.text.swap(made.text);
  out.said.swap(made.said);
  return {};
}

Run::Flow Run::exec(Node::List nodes) {
  for (const Node* node : nodes) {
    const Flow flow = exec(*node);
    if (failed() || flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Run::Flow Run::exec(const Node& node) {
  line_ = node.line;
  if (!spend(1)) return Flow::kNext;
  switch (node.kind) {
    case NodeKind::kData:
      if (has_room(out_->text.size() + node.value.view().size())) out_->append(node.value.text());
      break;
    case NodeKind::kPrint: {
      const Value value = eval(*node.a);
      const size_t n_bytes = value.is_string() ? value.view().size() : 0;
      line_ = node.line;
      if (!failed() && n_bytes + out_->text.size() <= kMaxTextBytes) put_text(*out_, value);
      if (n_bytes + out_->text.size() > kMaxTextBytes) has_room(kMaxTextBytes + 1);
      spend(n_bytes / kStepBytes);
      break;
    }
    case NodeKind::kFor:
      exec_for(node);
      break;
    case NodeKind::kIf:
      return exec_if(node);
    case NodeKind::kSet:
      assign(*node.a, eval(*node.b));
      break;
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock: {
      Value text = captured(node.list, new_scope(scope_));
      if (node.b != nullptr && !failed()) text = filter_node(*node.b, &text);
      if (failed()) break;
      if (node.kind == NodeKind::kSetBlock) {
        assign(*node.a, text);
      } else {
        put_text(*out_, text);
      }
      break;
    }
    case NodeKind::kMacro:
      define(node.name, {Type::kMacro, heap.make<Macro>(&node, scope_)});
      break;
    case NodeKind::kCallBlock: {
      const Value callee = eval(*node.a->a);
      Args args(&heap);
      eval_args(*node.a, args);
      args.named.emplace_back("caller", Value(Type::kMacro, heap.make<Macro>(&node, scope_)));
      const Value text = failed() ? Value() : call(callee, args);
      if (!failed()) put_text(*out_, text);
      break;
    }
    case NodeKind::kWith:
      exec_with(node);
      break;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      break;
  }
  return Flow::kNext;
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

void Run::exec_with(const Node& node) {
  const Value inner = new_scope(scope_);
  std::pmr::vector<Value> values(&heap);
  for (const Node* value : node.defaults) values.push_back(eval(*value));
  const Inside inside(*this, inner);
  for (size_t i = 0; i < values.size() && !failed(); ++i) assign(*node.params[i], values[i]);
  exec(node.list);
}

void Run::define(uint32_t name, const Value& value) {
  auto& variables = scope_.as<Scope>().variables;
  const auto at =
      std::find_if(variables.begin(), variables.end(), [&](const auto& entry) { return entry.first == name; });
  if (at != variables.end()) {
    at->second = value;
  } else {
    variables.emplace_back(name, value);
  }
}

void Run::assign(const Node& target, const Value& value) {
  if (failed()) return;
  if (target.kind == NodeKind::kName) return define(target.name, value);
  if (target.kind == NodeKind::kNamespaceRef) {
    const Value* space = variable(target.name);
    if (space == nullptr || !space->is(Type::kNamespace))
      return void(error("cannot assign to an attribute of what is no namespace"));
    return space->dict().set(make_text(target.text), value);
  }
  if (target.kind != NodeKind::kTuple) return void(error("cannot assign to this"));
  const Value list = items_of(value);
  if (failed()) return;
  const auto& items = list.sequence().items;
  if (items.size() != target.list.size())
    return void(error("%zu values to unpack, %zu expected", items.size(), target.list.size()));
  for (size_t i = 0; i < items.size(); ++i) assign(*target.list[i], items[i]);
}

Value Run::captured(Node::List nodes, const Value& scope) {
  Str* text = make_text();
  const Value kept = text;
  const Inside inside(*this, scope, text);
  exec(nodes);
  return kept;
}

// ---- loops ----

void Run::exec_for(const Node& node) {
  const Value source = eval(*node.b);
  if (!failed()) run_loop(node, source, 0);
}

// Whether the loop has an item of this index; reads the source as far as that takes.
bool Run::fetch(Loop& loop, size_t index) {
  const auto& source = loop.source.sequence().items;
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

void Run::run_loop(const Node& node, const Value& source, uint32_t depth) {
  Loop* loop = heap.make<Loop>(&heap);
  const Value kept = {Type::kLoop, loop};
  loop->node = &node;
  loop->scope = scope_;
  loop->source = items_of(source);
  loop->depth = depth;
  const auto name = template_.names_.find("loop");
  if (failed()) return;
  bool has_ended = false;
  for (; fetch(*loop, loop->index); ++loop->index) {
    const Inside inside(*this, new_scope(loop->scope));
    if (name != template_.names_.end()) define(name->second, kept);
    assign(*node.a, loop->items[loop->index]);
    const Flow flow = exec(node.list);
    has_ended = has_ended || flow == Flow::kNext;
    if (flow == Flow::kBreak || failed()) break;
  }
  // As jinja2 has it: the other block follows unless a pass came to its end, without break and continue.
  if (has_ended || failed()) return;
  const Inside inside(*this, new_scope(scope_));
  exec(node.others);
}

Value Run::call_loop(Loop& loop, const Value& items) {
  const Node* node = loop.node;
  if (!node->is_recursive) return error("the loop has no 'recursive' marker");
  Str* text = make_text();
  const Value kept = text;
  const Inside inside(*this, loop.scope, text);
  run_loop(*node, items, loop.depth + 1);
  return kept;
}

// ---- macros ----

Value Run::call_macro(Macro& macro, Args& args) {
  const Node& node = *macro.node;
  const int n_name = static_cast<int>(std::min<size_t>(node.text.size(), 60));
  const char* name = node.text.data();
  const Value scope = new_scope(macro.scope);
  const Inside inside(*this, scope);
  const size_t n_params = node.params.size(), n_plain = n_params - node.defaults.size();
  size_t n_used = 0;
  for (size_t i = 0; i < n_params && !failed(); ++i) {
    const Node& param = *node.params[i];
    const Value* value = i < args.size() ? &args[i] : args.find(param.text);
    if (i >= args.size() && value != nullptr) ++n_used;
    if (value != nullptr) {
      define(param.name, *value);
    } else {
      define(param.name, i >= n_plain ? eval(*node.defaults[i - n_plain]) : Value::undefined(&param));
    }
  }
  const auto is_param = [&](string_view key) {
    return std::any_of(node.params.begin(), node.params.end(), [&](const Node* param) { return param->text == key; });
  };
  const auto add = [&](const char* variable, const Value& value) {
    define(template_.names_.find(variable)->second, value);
  };
  if (args.size() > n_params && !node.reads_more)
    return error("macro '%.*s' takes not more than %zu arguments", n_name, name, n_params);
  if (node.reads_more && !is_param("varargs")) {
    Seq* more = make_list(SeqKind::kTuple);
    const Value kept = more;
    for (size_t i = n_params; i < args.size(); ++i) more->items.push_back(args[i]);
    add("varargs", kept);
  }
  if (node.reads_caller && !is_param("caller")) {
    const Value* caller = args.find("caller");
    if (caller != nullptr) ++n_used;
    add("caller", caller != nullptr ? *caller : Value());
  }
  if (node.reads_named && !is_param("kwargs")) {
    Dict* named = heap.make<Dict>(&heap);
    const Value kept = named;
    for (const auto& [key, value] : args.named) {
      if (!is_param(key) && !(node.reads_caller && key == "caller")) named->set(make_text(key), value);
    }
    add("kwargs", kept);
  } else if (n_used != args.named.size()) {
    return error("macro '%.*s' does not take one of the keyword arguments", n_name, name);
  }
  if (failed()) return {};
  Str* text = make_text();
  const Value kept = text;
  const Inside printing(*this, scope, text);
  exec(node.list);
  return kept;
}

Status render(const Template& from, Heap& heap, std::span<const Variable> variables, int64_t unix_time,
              RenderedText& out) {
  heap.n_steps = 0;
  return Run(from, heap, unix_time).render(variables, out);
}

}  // namespace weir::jinja
