// One rendering of a template. The first error stays (no exceptions): from then on every step returns at once.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/functions.h"
#include "text/jinja/jinja.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace weir::jinja {

// The variables of a block; a macro keeps the scopes around it alive.
struct Scope final : Object {
  Scope(Heap* memory, Value around) : outer(std::move(around)), variables(memory) {}
  void drop() override {
    outer = Value::none();
    variables.clear();
  }

  Value outer;  // a scope, or none
  std::pmr::vector<std::pair<uint32_t, Value>> variables;
};

struct Macro final : Object {
  Macro(const Node* of, Value around) : node(of), scope(std::move(around)) {}
  void drop() override { scope = Value::none(); }

  const Node* node;  // kMacro or kCallBlock
  Value scope;
};

struct Method final : Object {
  Method(Value of, const Function* what) : self(std::move(of)), function(what) {}
  void drop() override { self = Value::none(); }

  Value self;
  const Function* function;
};

struct Loop final : Object {
  explicit Loop(Heap* memory) : items(memory) {}
  void drop() override {
    items.clear();
    source = last_seen = scope = Value::none();
  }

  const Node* node = nullptr;     // kFor
  Value scope;                    // around the loop
  Value source;                   // a sequence
  size_t n_read = 0;              // of the source
  std::pmr::vector<Value> items;  // those that passed the loop's condition
  size_t index = 0;
  uint32_t depth = 0;
  Value last_seen;  // of loop.changed
  bool has_seen = false;
};

struct Cycler final : Object {  // and joiner
  explicit Cycler(Heap* memory) : items(memory) {}
  void drop() override { items.clear(); }

  std::pmr::vector<Value> items;
  size_t at = 0;
};

class Run {
 public:
  Run(const Template& from, Heap& memory, int64_t unix_seconds)
      : heap(memory), unix_time(unix_seconds), template_(from) {}

  Status render(std::span<const Variable> variables, RenderedText& out);

  // ---- for the functions of the language ----

  // Stores the message with the current line, unless something failed before. Returns an undefined value.
  Value error(const char* format, ...) __attribute__((format(printf, 2, 3)));
  Value refuse(weir_status code, std::string_view message);
  bool failed() const { return !status_.ok(); }
  // Counts steps, and what values take; false when that is too much.
  bool spend(uint64_t n_steps);
  // Room for a text of this many bytes.
  bool has_room(uint64_t n_bytes);

  Seq* make_list(SeqKind kind = SeqKind::kList) { return heap.make<Seq>(&heap, kind); }
  Str* make_text(std::string_view text = {}, bool is_said = false) { return jinja::make_text(heap, text, is_said); }
  Value text_of(const Value& value);  // str(); a text also after an error
  // A list of what iterating over the value gives; an iterator is used up by it. Null after an error.
  Value items_of(const Value& value);
  int64_t length_of(const Value& value);
  Value binary(Op op, const Value& left, const Value& right);
  bool holds(Op op, const Value& left, const Value& right);
  Value attribute(const Value& of, std::string_view name, const Node* node);
  Value item(const Value& of, const Value& key, const Node* node);
  Value call(const Value& callee, Args& args);
  Value call(const Function& function, const Value& self, Args& args);
  // Filters and tests by number, as the parser found them; the name is for messages.
  Value filter(uint32_t id, std::string_view name, const Value& of, Args& args);
  bool test(uint32_t id, std::string_view name, const Value& of, Args& args);
  Value sliced(const Value& of, const Value& start, const Value& stop, const Value& step);

  Heap& heap;
  int64_t unix_time;

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Depth;
  struct Inside;

  // expr.cpp
  Value eval(const Node& node);
  Value eval_list(const Node& node);
  Value eval_compare(const Node& node);
  Value eval_call(const Node& node);
  Value eval_slice(const Node& node);
  void eval_args(const Node& node, Args& args);
  Value filter_node(const Node& node, const Value* captured);
  Value concat(const Node& node);
  Value arithmetic(Op op, const Value& left, const Value& right);
  Value repeated(const Value& value, int64_t n);
  bool contains(const Value& container, const Value& item);
  Value undefined_error(const Value& value);
  Value loop_attribute(Loop& loop, std::string_view name, const Node* node);
  const Value* variable(uint32_t name) const;

  // exec.cpp
  Flow exec(Node::List nodes);
  Flow exec(const Node& node);
  Flow exec_if(const Node& node);
  void exec_for(const Node& node);
  void run_loop(const Node& node, const Value& source, uint32_t depth);
  bool fetch(Loop& loop, size_t index);
  void exec_with(const Node& node);
  void assign(const Node& target, const Value& value);
  void define(uint32_t name, const Value& value);
  // What the nodes print, in a scope of their own.
  Value captured(Node::List nodes, const Value& scope);
  Value call_macro(Macro& macro, Args& args);
  Value call_loop(Loop& loop, const Value& items);
  Value new_scope(const Value& outer) { return {Type::kScope, heap.make<Scope>(&heap, outer)}; }

  const Template& template_;
  Value scope_;
  Str* out_ = nullptr;
  Status status_;
  uint32_t line_ = 1;
  uint32_t depth_ = 0;
};

}  // namespace weir::jinja
