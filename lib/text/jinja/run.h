// One rendering of a template: the nodes that it runs, the functions of the language, and the state. The first error
// stays (no exceptions): from then on every step returns at once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <optional>
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
  kCaptured,   // what the block holds that filters follow
  kList,       // list
  kTuple,      // list
  kDict,       // list: keys and values in turn
  kNot,        // a
  kSign,       // a, negated where op is kSub
  kAnd,        // a, b
  kOr,         // a, b
  kBinary,     // a op b; where is_chained a is a comparison of the same chain
  kCondition,  // a if b else c
  kAttribute,  // a.text
  kItem,       // a[b]
  kSlice,      // a[list], three of which each may be null
  kCall,       // a(list, named, *b, **c)
  kFilter,     // a|text(...) as a call
  kTest,       // a is text(...)
  // statements
  kPrint,         // a
  kData,          // value
  kFor,           // for a in b if c: list else others
  kIf,            // if a: list else others
  kSet,           // set a = b
  kSetBlock,      // set a: list, filtered by b
  kNamespaceRef,  // name.text as a target
  kMacro,         // name(named): list
  kCallBlock,     // call(named) a: list
  kFilterBlock,   // filter b: list
  kWith,          // named: list
  kBreak,
  kContinue,
};

enum class Op : uint8_t { kAdd, kSub, kMul, kDiv, kFloor, kMod, kPow, kJoin, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kOut };
// By Op, with `and` and `or` behind them: how they are written, and how tightly they bind.
inline constexpr std::string_view kSigns[] = {
    "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"};
inline constexpr int kLevels[] = {4, 4, 6, 6, 6, 6, 7, 5, 3, 3, 3, 3, 3, 3, 3, 3, 1, 0};
inline constexpr int kNotLevel = 2, kCompareLevel = 3, kPowerLevel = 7;

struct Function;

struct Node {
  using List = std::pmr::vector<const Node*>;
  struct Named {
    std::string_view name;
    const Node* value;  // null for a parameter without a default
    const Node* target = nullptr;
  };
  Node(NodeKind of_kind, uint32_t at_line, Heap* memory)
      : kind(of_kind), line(at_line), list(memory), others(memory), named(memory) {}

  NodeKind kind;
  Op op = Op::kAdd;
  bool is_recursive = false, is_chained = false;     // of a loop, of a comparison
  bool reads_varargs = false, reads_kwargs = false;  // of a macro
  uint32_t line;
  uint32_t name = 0;
  std::string_view text;
  const Function* function = nullptr;  // null for an unknown one
  Value value;
  const Node *a = nullptr, *b = nullptr, *c = nullptr;
  List list, others;
  std::pmr::vector<Named> named;
};

// Gives a variable another value until the end of a block.
template <class T>
struct Within {
  Within(T& of, T value) : variable(of), before(std::exchange(of, value)) {}
  Within(const Within&) = delete;
  ~Within() { variable = before; }
  T& variable;
  T before;
};

// ---- the filters, tests, global functions and methods: tables of names, parameters and what they do ----

// Arguments of a call; of a function of the language one for each parameter, undefined where it was not given.
struct Args {
  explicit Args(Heap* memory) : list(memory), named(memory) {}
  Args(const Args& other, Heap* memory) : list(other.list, memory), named(other.named, memory) {}
  Args(const Args&) = delete;  // the copy's memory would be the process's

  size_t size() const { return list.size(); }
  const Value& operator[](size_t i) const { return list[i]; }
  bool has(size_t i) const { return !list[i].is_undefined(); }
  bool flag(size_t i) const { return is_true(list[i]); }
  int64_t number(size_t i, int64_t otherwise) const { return has(i) ? list[i].integer() : otherwise; }
  std::optional<Value> take(std::string_view name);  // out of those with names

  std::pmr::vector<Value> list;
  std::pmr::vector<std::pair<std::string_view, Value>> named;
};

class Run;

// Its parameters, such as "value:s count:i?", that of the object of a filter, test or method first: a name, a letter
// for what it takes, and ? where it may be missing, also as None. Letters: s text, t anything as a text, i integer,
// n number, d mapping, l what iterating gives, o likewise but nothing of what is false, a anything. A * at the end
// takes all that follows.
struct Function {
  std::string_view name;  // or several, with spaces between them
  std::string_view params;
  Value (*run)(Run& run, const Args& args);
};

enum class Table : uint8_t {
  kFilters,
  kTextFilters,
  kTests,
  kGlobals,
  kTextMethods,
  kListMethods,
  kDictMethods,
  kLoopMethods
};
std::span<const Function> functions(Table table);
const Function* find_function(Table table, std::string_view name);
std::string_view take_word(std::string_view& words);  // the first one, out of those with spaces between them

// ---- objects of a rendering ----

// The variables of a block.
struct Scope {
  Scope* outer;  // or null
  std::pmr::vector<std::pair<uint32_t, Value>> variables;
  bool is_kept = false;  // by a macro
};

struct Macro {
  const Node* node;  // kMacro or kCallBlock
  Scope* scope;
};

struct Bound {
  const Function* function;
  Value self;  // undefined for a global function
};

struct Loop {
  const Node* node;  // kFor
  Scope* scope;      // around the loop
  const Seq* source;
  std::pmr::vector<Value> items;  // those that passed the loop's condition
  size_t depth;
  size_t n_read = 0;  // of the source
  size_t index = 0;
  Value changed = {};  // what loop.changed() saw last
};

// What the functions of the language see of a rendering.
class Run {
 public:
  Run(Heap& memory, int64_t unix_seconds) : heap(memory), unix_time(unix_seconds) {}
  virtual ~Run() = default;

  // Stores the message with the current line, unless something failed before. Returns an undefined value.
  Value error(const char* format, ...) __attribute__((format(printf, 2, 3)));
  Value refuse(weir_status code, std::string_view message);
  Value undefined_error(const Value& value);
  bool failed() const { return !status_.ok(); }
  std::pmr::string short_name(std::string_view name);  // for messages
  // Counts steps, and what values take; false when that is too much.
  bool spend(uint64_t n_steps);
  // Counts the search for a text in another one, which may compare all of it at every place.
  bool can_search(std::string_view in, std::string_view wanted);
  // Whether a text of this size may grow by so many bytes, which are counted as steps.
  bool has_room(uint64_t size, uint64_t n_more);
  bool add(Str& to, std::string_view more, bool is_said);
  bool add(Str& to, const Str& from, size_t begin = 0, size_t end = SIZE_MAX);

  Seq* new_list(std::initializer_list<Value> items = {}, SeqKind kind = SeqKind::kList);
  Dict* new_dict() { return heap.make<Dict>(&heap); }
  Dict* dict_of(const Args& args, const Value& from = {});  // what is named, behind what is in a mapping
  Str* new_text(std::string_view text = {}, bool is_said = false) { return make_text(heap, text, is_said); }
  Str* part(const Str& text, size_t begin, size_t end = SIZE_MAX);
  Str* text_of(const Value& value);  // str()
  Str* repr_of(const Value& value);
  // A list of what iterating over the value gives; an iterator is used up by it. Empty after an error.
  Value items_of(const Value& value);
  int64_t length_of(const Value& value);
  Value binary(Op op, const Value& left, const Value& right);
  Value attribute(const Value& of, std::string_view name, const Node* node);
  Value item(const Value& of, const Value& key, const Node* node);
  Value sliced(const Value& of, const Value& start, const Value& stop, const Value& step);
  Value call(const Function& function, Args& args);
  // The filter or test of this name.
  Value call(Table table, std::string_view name, const Function* function, Args& args);

  Heap& heap;
  int64_t unix_time;

 protected:
  virtual Value loop_attribute(Loop& loop, std::string_view name, const Node* node) = 0;

  Status status_;
  uint32_t line_ = 1;

 private:
  bool convert(char kind, Value& value);
  bool contains(const Value& container, const Value& item);
  bool holds(Op op, const Value& left, const Value& right);
  Value arithmetic(Op op, const Value& left, const Value& right);
  Value repeated(const Value& value, int64_t n);
};

// ---- what the functions of texts, and others, share ----

enum class Case : uint8_t { kUpper, kLower, kCapital, kTitle, kTitleWords, kSwapped };
Value with_case(Run& run, const Str& text, Case form);
Value format_percent(Run& run, const Str& format, const Value& values);
std::span<const Function> text_functions(bool are_methods);  // or filters
Value f_tojson(Run& run, const Args& args);
Value g_strftime_now(Run& run, const Args& args);

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
