// One rendering of a template: the nodes that it runs, the functions of the language, and the state. The first error
// stays (no exceptions): from then on every step returns at once.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "text/jinja/jinja.h"
#include "text/jinja/value.h"

namespace weir::jinja {

// How all messages about a template begin, and the code of those that are not about one conversation.
#define WEIR_TEMPLATE_LINE "chat template, line %u: "
inline constexpr weir_status kBadTemplate = WEIR_ERR_FORMAT;

// ---- what a template is after it was parsed; nodes live in the template's arena and never change ----

enum class NodeKind : uint8_t {
  // expressions
  kConst,      // value
  kName,       // name
  kList,       // list
  kTuple,      // list
  kDict,       // list: keys and values in turn
  kNot,        // a
  kSign,       // a, negated where op is kSub
  kBinary,     // a op b
  kAnd,        // a, b
  kOr,         // a, b
  kCompare,    // a, then list of kCompare: op a
  kCondition,  // a if b else c
  kAttribute,  // a.text
  kItem,       // a[b]
  kSlice,      // a[list], three of which each may be null
  kCall,       // a(list, named, *b, **c)
  kFilter,     // a|text(...) as a call; a is null for what a block holds; name: the filter's number
  kTest,       // a is text(...); name: the test's number
  // statements
  kPrint,         // a
  kData,          // value
  kFor,           // for a in b if c: list else others
  kIf,            // if a: list else others
  kSet,           // set a = b
  kSetBlock,      // set a: list, filtered by b
  kNamespaceRef,  // name.text as a target
  kMacro,         // name(params, defaults): list
  kCallBlock,     // call(params, defaults) a: list
  kFilterBlock,   // filter b: list
  kWith,          // params = defaults: list
  kBreak,
  kContinue,
};

enum class Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kConcat,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

struct Node {
  struct Named {
    std::string_view name;
    const Node* value;
  };
  using List = std::span<const Node* const>;

  NodeKind kind = NodeKind::kConst;
  Op op = Op::kAdd;
  bool is_recursive = false;  // of a loop
  uint32_t line = 0;
  uint32_t name = 0;
  std::string_view text;
  Value value;
  const Node *a = nullptr, *b = nullptr, *c = nullptr;
  List list, others, params, defaults;
  std::span<const Named> named;
};

// ---- the filters, tests, global functions and methods: tables of names, parameters and what they do ----

// Arguments of a call. After they were matched with a function's parameters there is one place for each of these.
struct Args {
  explicit Args(Heap* memory) : list(memory), named(memory) {}

  size_t size() const { return list.size(); }
  // Whether the parameter was given, and what it was; undefined when not.
  bool has(size_t i) const { return i < list.size() && (given >> i & 1) != 0; }
  bool has_some(size_t i) const { return has(i) && !list[i].is_none(); }
  bool flag(size_t i, bool otherwise = false) const { return has(i) ? is_true(list[i]) : otherwise; }
  const Value& operator[](size_t i) const { return list[i]; }
  const Value* find(std::string_view name) const;

  std::pmr::vector<Value> list;
  std::pmr::vector<std::pair<std::string_view, Value>> named;
  uint64_t given = 0;
};

class Run;

using FunctionBody = Value(Run& run, const Value& self, const Args& args);

struct Function {
  std::string_view name;  // or several, with commas between them
  const char* params;     // names with commas between them, the first n_required must be given; nullptr: anything goes
  uint32_t n_required;
  FunctionBody* run;
};

inline constexpr uint32_t kNoFunction = UINT32_MAX;
enum class Table : uint8_t { kFilters, kTests, kGlobals };
std::span<const Function> functions(Table table);
std::span<const Function> methods(Type type);
uint32_t find_function(std::span<const Function> table, std::string_view name);

// ---- objects of a rendering ----

// The variables of a block.
struct Scope {
  Scope(Scope* around, Heap* memory) : outer(around), variables(memory) {}

  Scope* outer;          // or null
  bool is_kept = false;  // by a macro
  std::pmr::vector<std::pair<uint32_t, Value>> variables;
};

struct Macro {
  const Node* node;  // kMacro or kCallBlock
  Scope* scope;
};

struct Method {
  Value self;
  const Function* function;
};

struct Loop {
  Loop(const Node* of, Scope* around, Seq* what, uint32_t how_deep, Heap* memory)
      : node(of), scope(around), source(what), depth(how_deep), items(memory) {}

  const Node* node;  // kFor
  Scope* scope;      // around the loop
  Seq* source;
  uint32_t depth;
  std::pmr::vector<Value> items;  // those that passed the loop's condition
  size_t n_read = 0;              // of the source
  size_t index = 0;
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
  std::pmr::string short_name(std::string_view name);
  // Counts steps, and what values take; false when that is too much.
  bool spend(uint64_t n_steps);
  // Room for a text of this many bytes.
  bool has_room(uint64_t n_bytes);

  Seq* new_list(SeqKind kind = SeqKind::kList) { return heap.make<Seq>(&heap, kind); }
  Dict* new_dict() { return heap.make<Dict>(&heap); }
  Str* new_text(std::string_view text = {}, bool is_said = false) { return make_text(heap, text, is_said); }
  Value text_of(const Value& value);  // str(); a text also after an error
  // A list of what iterating over the value gives; an iterator is used up by it. Empty after an error.
  Value items_of(const Value& value);
  int64_t length_of(const Value& value);
  // The argument as an integer; `otherwise` where it was not given.
  int64_t number(const Args& args, size_t i, int64_t otherwise);
  Value binary(Op op, const Value& left, const Value& right);
  bool holds(Op op, const Value& left, const Value& right);
  Value attribute(const Value& of, std::string_view name, const Node* node);
  Value item(const Value& of, const Value& key, const Node* node);
  Value sliced(const Value& of, const Value& start, const Value& stop, const Value& step);
  Value call(const Value& callee, Args& args);
  Value call(const Function& function, const Value& self, Args& args);
  // A filter or test by its number, as the parser found it; the name is for messages.
  Value call(Table table, uint32_t id, std::string_view name, const Value& of, Args& args);
  Value undefined_error(const Value& value);

  Heap& heap;
  int64_t unix_time;

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Depth;
  struct Inside;

  Value eval(const Node& node);
  Value eval_compare(const Node& node, Value left);
  void eval_args(const Node& node, Args& args);
  Value filtered(const Node& node, const Value* captured);
  Value arithmetic(Op op, const Value& left, const Value& right);
  bool contains(const Value& container, const Value& item);
  Value loop_attribute(Loop& loop, std::string_view name, const Node* node);
  const Value* variable(uint32_t name) const;

  Flow exec(Node::List nodes);
  Flow exec(const Node& node);
  Flow exec_if(const Node& node);
  Flow run_loop(const Node& node, const Value& source, uint32_t depth);
  bool fetch(Loop& loop, size_t index);
  Flow assign(const Node& target, const Value& value);
  Flow define(uint32_t name, const Value& value);
  Flow print(const Value& value);
  // What the nodes print, with this scope.
  Str* captured(Node::List nodes, Scope* scope);
  Value new_macro(const Node& node);
  Value call_macro(Macro& macro, Args& args);
  Scope* new_scope(Scope* outer) { return heap.make<Scope>(outer, &heap); }

  const Template& template_;
  Scope* scope_ = nullptr;
  Str* out_ = nullptr;
  Status status_;
  uint32_t line_ = 1, depth_ = 0;
};

// ---- what the functions of texts, and others, share ----

enum class Case : uint8_t { kUpper, kLower, kCapital, kTitle, kTitleWords };
Value with_case(Run& run, const Str& text, Case form);
Value format_percent(Run& run, const Str& format, const Value& values);
FunctionBody f_abs, f_escape, f_float, f_format, f_indent, f_int, f_replace, f_round, f_tojson, f_trim, g_strftime_now;
std::span<const Function> text_methods();

// A stable sort whose memory comes from the vector's own resource; that of the standard library takes its buffer from
// the global heap. Bounded also where the order contradicts itself.
template <class T, class Less>
void merge_sort(std::pmr::vector<T>& items, const Less& less) {
  std::pmr::vector<T> merged(items, items.get_allocator());
  const size_t n = items.size();
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t first = 0; first < n; first += 2 * width) {
      const size_t middle = std::min(first + width, n), end = std::min(first + 2 * width, n);
      for (size_t to = first, a = first, b = middle; to < end; ++to) {
        const bool takes_second = b < end && (a == middle || less(items[b], items[a]));
        merged[to] = items[takes_second ? b++ : a++];
      }
    }
    items.swap(merged);
  }
}

}  // namespace weir::jinja
