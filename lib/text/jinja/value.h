// Values of the template language: Python's, as far as templates see them. Objects lie in a Heap, which belongs to one
// rendering and one thread. Nothing but namespaces ever changes once it was made, because templates run as in Jinja's
// immutable sandbox.
//
// Every text knows which of its bytes were said, that is come from data, not from the template; a number or a truth
// value that was computed from data is marked as a whole.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/characters.h"
#include "text/keyed_hash.h"
#include "text/tokenizer.h"

namespace weir::jinja {

// ---- what a template may use; real ones need a hundredth of each for a conversation of thousands of messages ----

inline constexpr size_t kMaxTemplateBytes = size_t{256} << 10;  // the longest known ones have 30 KB
// Tags and brackets inside each other. Python's parser gives up at about as many.
inline constexpr uint32_t kMaxNesting = 100;
// Expressions, blocks and macros under way inside each other: half a megabyte of stack, the least that threads have on
// common systems. A chain such as a + b + c takes one for each operator.
inline constexpr uint32_t kMaxDepth = 500;
inline constexpr uint32_t kMaxValueDepth = 200;  // values inside each other, where they are read, compared or written
// Nodes run, items walked over, and every 64 bytes of text made: some seconds.
inline constexpr uint64_t kMaxSteps = 50'000'000, kStepBytes = 64;
inline constexpr uint64_t kStepItems = 16;                    // items, or characters, that are looked at
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;     // a context of a million tokens has a tenth of it
inline constexpr uint64_t kMaxHeapBytes = uint64_t{1} << 30;  // of all values alive, those given included
inline constexpr int64_t kMaxRange = 100'000;                 // what range() makes, as in Jinja's sandbox

struct Node;
struct Str;
struct Seq;
struct Dict;

// Memory of one rendering, or of a template. Objects stay until it goes; what they grow out of is used again.
class Heap final : public std::pmr::memory_resource {
 public:
  explicit Heap(std::pmr::memory_resource* memory) : key(random_hash_key()), arena_(memory) {}

  template <class T, class... Args>
  T* make(Args&&... args) {
    return new (allocate(sizeof(T), alignof(T))) T{std::forward<Args>(args)...};
  }
  uint64_t bytes() const { return bytes_; }

  const HashKey key;
  // The steps of a rendering, those of walking through values included; beyond the limit walks end early.
  uint64_t n_steps = 0;
  bool is_too_deep = false;  // a walk did not get to the end of a value

 private:
  // Blocks of powers of two, each used again for its size.
  struct Block {
    Block* next;
  };
  static size_t size_class(size_t bytes) { return std::bit_width(std::max<size_t>(bytes, 16) - 1); }
  void* do_allocate(size_t bytes, size_t) override {
    const size_t i = size_class(bytes);
    void* place = free_[i] != nullptr ? std::exchange(free_[i], free_[i]->next) : arena_.allocate(size_t{1} << i, 16);
    bytes_ += size_t{1} << i;
    return place;
  }
  void do_deallocate(void* place, size_t bytes, size_t) override {
    const size_t i = size_class(bytes);
    free_[i] = new (place) Block{free_[i]};
    bytes_ -= size_t{1} << i;
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::monotonic_buffer_resource arena_;
  Block* free_[64] = {};
  uint64_t bytes_ = 0;
};

// While it lives, what this thread reads of values counts as steps of that heap, also of values that are a template's:
// those are of other renderings, too.
class Counting {
 public:
  explicit Counting(Heap& heap);
  Counting(const Counting&) = delete;
  ~Counting();

 private:
  Heap* before_;
};

// From kString on a value refers to an object of the heap.
enum class Type : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kLargeInt,  // an integer of data beyond 64 bits: its digits, only to be written again
  kSequence,
  kDict,
  kNamespace,
  kMacro,
  kFunction,  // one of the language, or a method with its object
  kLoop,
};

class Value {
 public:
  Value() : bits_{.node = nullptr} {}
  Value(Type type, void* object) : type_(type), bits_{.object = object} {}
  Value(Str* text) : Value(Type::kString, text) {}            // NOLINT(google-explicit-constructor): a text is a value
  Value(Seq* sequence) : Value(Type::kSequence, sequence) {}  // NOLINT
  Value(Dict* dict) : Value(Type::kDict, dict) {}             // NOLINT

  // `node` (may be null) tells what is undefined, for messages.
  static Value undefined(const Node* node) { return {Type::kUndefined, Bits{.node = node}, false}; }
  static Value none() { return {Type::kNone, Bits{.number = 0}, false}; }
  static Value boolean(bool is, bool said = false) { return {Type::kBool, Bits{.number = is}, said}; }
  static Value integer(int64_t number, bool said = false) { return {Type::kInt, Bits{.number = number}, said}; }
  static Value real(double number, bool said = false) { return {Type::kFloat, Bits{.real = number}, said}; }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_dict() const { return type_ == Type::kDict; }
  bool is_sequence() const { return type_ == Type::kSequence; }
  bool is_integer() const { return type_ == Type::kInt || type_ == Type::kBool; }  // as Python counts
  bool is_number() const { return is_integer() || type_ == Type::kFloat; }
  bool is_said() const { return is_said_; }  // of numbers, truth values and none
  inline bool is_list() const;               // or a tuple

  int64_t integer() const { return bits_.number; }
  double real() const { return type_ == Type::kFloat ? bits_.real : static_cast<double>(bits_.number); }
  const Node* node() const { return bits_.node; }
  void* object() const { return type_ >= Type::kString ? bits_.object : nullptr; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(bits_.object);
  }
  const Str& text() const { return as<Str>(); }
  inline std::string_view view() const;  // of a string
  Seq& sequence() const { return as<Seq>(); }
  inline std::pmr::vector<Value>& items() const;  // of a sequence
  Dict& dict() const { return as<Dict>(); }       // of a dict or namespace

 private:
  union Bits {
    const Node* node;
    int64_t number;
    double real;
    void* object;
  };
  Value(Type type, Bits bits, bool said) : type_(type), is_said_(said), bits_(bits) {}

  Type type_ = Type::kUndefined;
  bool is_said_ = false;
  Bits bits_;
};

struct Str {
  explicit Str(Heap* memory) : text(memory), said(memory) {}

  void append(std::string_view more, bool is_said) {
    text.append(more);
    said.append(more.size(), is_said ? '\1' : '\0');
  }
  void append(const Str& from, size_t begin = 0, size_t end = SIZE_MAX) {
    text.append(from.text, begin, end - begin);
    said.append(from.said, begin, end - begin);
  }

  std::pmr::string text;
  std::pmr::string said;  // 1 for each byte that came from data, else 0
};

enum class SeqKind : uint8_t { kList, kTuple, kGroup, kRange, kIterator, kKeys, kValues, kItems };

struct Seq {
  Seq(Heap* memory, SeqKind of_kind) : items(memory), kind(of_kind) {}
  bool is_tuple() const { return kind == SeqKind::kTuple || kind == SeqKind::kGroup; }
  bool has_items() const { return kind <= SeqKind::kRange; }  // can be indexed

  std::pmr::vector<Value> items;
  SeqKind kind;
};

// Also the attributes of a namespace.
struct Dict {
  explicit Dict(Heap* memory) : entries(memory), slots(memory) {}
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, const Value& value);

  struct Entry {
    Value key, value;
  };
  std::pmr::vector<Entry> entries;

 private:
  void add_slot(uint32_t entry);
  std::pmr::vector<uint32_t> slots;  // of texts as keys: entry + 1; 0: free. Only for more than a few entries.
};

inline std::string_view Value::view() const { return as<Str>().text; }
inline std::pmr::vector<Value>& Value::items() const { return as<Seq>().items; }
inline bool Value::is_list() const { return is_sequence() && sequence().kind <= SeqKind::kGroup; }

const char* type_name(const Value& value);  // Python's, such as "str"
bool is_true(const Value& value);
bool is_said(const Value& value, uint32_t depth = 0);  // whether anything in the value comes from data
bool are_equal(const Value& a, const Value& b, uint32_t depth = 0);
// -1, 0, 1, or 2: these cannot be ordered.
int compare(const Value& a, const Value& b, uint32_t depth = 0);
bool can_be_key(const Value& value, uint32_t depth = 0);
Str* make_text(Heap& heap, std::string_view text, bool is_said);

}  // namespace weir::jinja
