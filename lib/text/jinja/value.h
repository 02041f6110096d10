// Values of the template language: Python's, as far as templates see them. Objects are counted references into a Heap,
// which belongs to one rendering and one thread, and frees what is left (objects can refer to each other in circles).
// Nothing but namespaces ever changes once it was made, because templates run as in Jinja's immutable sandbox.
//
// Every text knows which of its bytes were said, that is come from data, not from the template; a number or a truth
// value that was computed from data is marked as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/keyed_hash.h"
#include "text/tokenizer.h"

namespace weir::jinja {

struct Node;
class Heap;

// Ordered: from kString on a value refers to an object.
enum class Type : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kFunction,  // one of the language, by its number
  kString,
  kLargeInt,  // an integer of data beyond 64 bits: its digits, only to be written again
  kSequence,
  kDict,
  kNamespace,
  kMacro,
  kMethod,
  kLoop,
  kCycler,
  kJoiner,
  kScope,
};

struct Object {
  static constexpr uint32_t kForever = UINT32_MAX;  // of a template's literals, which several threads may read

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  virtual void drop() {}  // forgets all values that it refers to

  uint32_t n_refs = 0;
  uint32_t n_bytes = 0;
  Heap* heap = nullptr;
  Object *before = nullptr, *next = nullptr;  // among the heap's objects
};

// Memory of one rendering: counts what is alive, and never calls itself when it frees long chains of objects.
class Heap final : public std::pmr::memory_resource {
 public:
  explicit Heap(std::pmr::memory_resource* memory) : memory_(memory), key_(random_hash_key()) {}
  ~Heap() override;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <class T, class... Args>
  T* make(Args&&... args) {
    void* place = allocate(sizeof(T));
    T* object;
    try {
      object = new (place) T(std::forward<Args>(args)...);
    } catch (...) {
      deallocate(place, sizeof(T));
      throw;
    }
    object->n_bytes = sizeof(T);
    object->heap = this;
    object->next = all_;
    if (all_ != nullptr) all_->before = object;
    all_ = object;
    return object;
  }
  void free(Object* object);

  uint64_t bytes() const { return bytes_; }
  const HashKey& key() const { return key_; }

  // Steps of a rendering, those of walking through values included; beyond the limit walks end early.
  uint64_t n_steps = 0;
  bool is_too_deep = false;  // a walk did not get to the end of a value

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* ptr, size_t bytes, size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
  void destroy(Object* object);

  // Small blocks are cut from slabs and kept, by their size, until the heap goes; larger ones come from `memory_`.
  static constexpr size_t kGrain = 16, kMaxSmall = 512, kSlab = 16384;
  struct Block {
    Block* next;
  };
  std::pmr::memory_resource* memory_;
  Block* free_[kMaxSmall / kGrain] = {};
  Block* slabs_ = nullptr;  // each begins with one
  size_t slab_left_ = 0;    // of the first
  HashKey key_;
  uint64_t bytes_ = 0;
  Object* all_ = nullptr;
  Object* dead_ = nullptr;  // still to be destroyed
  bool is_freeing_ = false;
};

struct Str;
struct Seq;
struct Dict;

class Value {
 public:
  Value() : bits_{.node = nullptr} {}
  Value(const Value& other) : type_(other.type_), is_said_(other.is_said_), bits_(other.bits_) { retain(); }
  Value(Value&& other) noexcept : type_(other.type_), is_said_(other.is_said_), bits_(other.bits_) {
    other.type_ = Type::kNone;
  }
  Value(Type type, Object* object) : type_(type), bits_{.object = object} { retain(); }
  Value(Str* text);      // NOLINT(google-explicit-constructor): a text is a value
  Value(Seq* sequence);  // NOLINT
  Value(Dict* dict);     // NOLINT
  ~Value() { release(); }
  Value& operator=(Value other) noexcept {
    std::swap(type_, other.type_);
    std::swap(is_said_, other.is_said_);
    std::swap(bits_, other.bits_);
    return *this;
  }

  // `node` (may be null) tells what is undefined, for messages.
  static Value undefined(const Node* node) { return {Type::kUndefined, Bits{.node = node}, false}; }
  static Value none() { return {Type::kNone, Bits{.number = 0}, false}; }
  static Value boolean(bool is, bool said = false) { return {Type::kBool, Bits{.number = is}, said}; }
  static Value integer(int64_t number, bool said = false) { return {Type::kInt, Bits{.number = number}, said}; }
  static Value real(double number, bool said = false) { return {Type::kFloat, Bits{.real = number}, said}; }
  static Value function(uint32_t id) { return {Type::kFunction, Bits{.number = id}, false}; }

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
  bool is_object() const { return type_ >= Type::kString; }

  int64_t integer() const { return bits_.number; }
  double real() const { return type_ == Type::kFloat ? bits_.real : static_cast<double>(bits_.number); }
  const Node* node() const { return bits_.node; }
  Object* object() const { return bits_.object; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*bits_.object);
  }
  const Str& text() const;
  std::string_view view() const;  // of a string
  Seq& sequence() const;
  Dict& dict() const;  // of a dict or namespace

 private:
  union Bits {
    const Node* node;
    int64_t number;
    double real;
    Object* object;
  };
  Value(Type type, Bits bits, bool said) : type_(type), is_said_(said), bits_(bits) {}
  void retain() const {
    if (is_object() && bits_.object->n_refs != Object::kForever) ++bits_.object->n_refs;
  }
  void release() {
    if (!is_object() || bits_.object->n_refs == Object::kForever || --bits_.object->n_refs != 0) return;
    bits_.object->heap->free(bits_.object);
  }

  Type type_ = Type::kUndefined;
  bool is_said_ = false;
  Bits bits_;
};

struct Str final : Object {
  explicit Str(Heap* memory) : text(memory), said(memory) {}

  void append(std::string_view more, bool is_said);
  void append(const Str& from, size_t begin = 0, size_t end = SIZE_MAX);
  void append_said(std::string_view more, const Str& like) { append(more, !like.said.empty()); }
  bool is_said_at(size_t at) const;

  std::pmr::string text;
  std::pmr::vector<TextRange> said;  // ascending, none empty, none touching
};

enum class SeqKind : uint8_t { kList, kTuple, kGroup, kRange, kIterator, kKeys, kValues, kItems };

struct Seq final : Object {
  Seq(Heap* memory, SeqKind of_kind) : items(memory), kind(of_kind) {}
  void drop() override { items.clear(); }
  bool is_tuple() const { return kind == SeqKind::kTuple || kind == SeqKind::kGroup; }
  bool has_items() const { return kind <= SeqKind::kRange; }  // can be indexed

  std::pmr::vector<Value> items;
  SeqKind kind;
};

// Also the attributes of a namespace.
struct Dict final : Object {
  explicit Dict(Heap* memory) : entries(memory), slots(memory) {}
  void drop() override { entries.clear(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, const Value& value);

  struct Entry {
    Value key, value;
  };
  std::pmr::vector<Entry> entries;

 private:
  uint64_t hash(const Value& key) const;
  template <class Same>
  const Entry* find_if(uint64_t hash, const Same& same) const;
  void add_slot(uint32_t entry);

  std::pmr::vector<uint32_t> slots;  // entry + 1; 0: free. Only for more than a few entries.
};

inline Value::Value(Str* text) : Value(Type::kString, text) {}
inline Value::Value(Seq* sequence) : Value(Type::kSequence, sequence) {}
inline Value::Value(Dict* dict) : Value(Type::kDict, dict) {}
inline const Str& Value::text() const { return as<Str>(); }
inline std::string_view Value::view() const { return as<Str>().text; }
inline Seq& Value::sequence() const { return as<Seq>(); }
inline Dict& Value::dict() const { return as<Dict>(); }

const char* type_name(const Value& value);  // Python's, such as "str"
bool is_true(const Value& value);
// Whether anything in the value comes from data.
bool is_said(const Value& value, uint32_t depth = 0);
bool are_equal(const Value& a, const Value& b, uint32_t depth = 0);
// -1, 0, 1, or 2: these cannot be ordered.
int compare(const Value& a, const Value& b, uint32_t depth = 0);
bool can_be_key(const Value& value);

// Python's repr(float): the shortest digits that give the number back.
void put_real(std::pmr::string& out, double number);
// Python's repr(), as a plain text.
void put_repr(std::pmr::string& out, const Value& value, uint32_t depth = 0);
// Python's str(): appends what {{ value }} prints.
void put_text(Str& out, const Value& value);

inline Str* make_text(Heap& heap, std::string_view text, bool is_said) {
  Str* made = heap.make<Str>(&heap);
  made->append(text, is_said);
  return made;
}

}  // namespace weir::jinja
