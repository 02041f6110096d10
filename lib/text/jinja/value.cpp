// Values of the template language.
#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/limits.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {

using std::string_view;

// ---- Heap ----

Heap::~Heap() {
  // First no object refers to another any more, then they go. None is freed by the first step.
  for (Object* object = all_; object != nullptr; object = object->next) object->n_refs = Object::kForever;
  for (Object* object = all_; object != nullptr; object = object->next) object->drop();
  while (all_ != nullptr) {
    Object* object = all_;
    all_ = object->next;
    destroy(object);
  }
  while (slabs_ != nullptr) {
    Block* slab = slabs_;
    slabs_ = slab->next;
    memory_->deallocate(slab, kSlab, kGrain);
  }
}

void* Heap::do_allocate(size_t bytes, size_t alignment) {
  if (bytes > kMaxSmall || alignment > kGrain) {
    void* place = memory_->allocate(bytes, alignment);
    bytes_ += bytes;
    return place;
  }
  const size_t size = std::max<size_t>(1, (bytes + kGrain - 1) / kGrain) * kGrain;
  Block*& free = free_[size / kGrain - 1];
  Block* place = free;
  if (place != nullptr) {
    free = place->next;
  } else {
    if (slab_left_ < size) {
      slabs_ = new (memory_->allocate(kSlab, kGrain)) Block{slabs_};
      slab_left_ = kSlab - kGrain;
    }
    place = reinterpret_cast<Block*>(reinterpret_cast<std::byte*>(slabs_) + kSlab - slab_left_);
    slab_left_ -= size;
  }
  bytes_ += size;
  return place;
}

void Heap::do_deallocate(void* ptr, size_t bytes, size_t alignment) {
  if (bytes > kMaxSmall || alignment > kGrain) {
    bytes_ -= bytes;
    return memory_->deallocate(ptr, bytes, alignment);
  }
  const size_t size = std::max<size_t>(1, (bytes + kGrain - 1) / kGrain) * kGrain;
  free_[size / kGrain - 1] = new (ptr) Block{free_[size / kGrain - 1]};
  bytes_ -= size;
}

void Heap::destroy(Object* object) {
  const size_t n_bytes = object->n_bytes;
  object->~Object();
  deallocate(object, n_bytes);
}

void Heap::free(Object* object) {
  if (object->before != nullptr) object->before->next = object->next;
  if (object->next != nullptr) object->next->before = object->before;
  if (all_ == object) all_ = object->next;
  object->next = dead_;
  dead_ = object;
  if (is_freeing_) return;  // its owner is being destroyed below
  is_freeing_ = true;
  while (dead_ != nullptr) {
    Object* gone = dead_;
    dead_ = gone->next;
    destroy(gone);
  }
  is_freeing_ = false;
}

// ---- Str ----

void Str::append(string_view more, bool is_said) {
  if (more.empty()) return;
  if (is_said) {
    if (!said.empty() && said.back().end == text.size()) {
      said.back().end += more.size();
    } else {
      said.push_back({text.size(), text.size() + more.size()});
    }
  }
  text.append(more);
}

void Str::append(const Str& from, size_t begin, size_t end) {
  end = std::min(end, from.text.size());
  const string_view all = from.text;
  auto range =
      std::partition_point(from.said.begin(), from.said.end(), [&](const TextRange& r) { return r.end <= begin; });
  while (begin < end) {
    const bool has_range = range != from.said.end() && range->begin < end;
    const size_t plain_end = has_range ? std::max(range->begin, begin) : end;
    append(all.substr(begin, plain_end - begin), false);
    if (!has_range) return;
    begin = std::min(range->end, end);
    append(all.substr(plain_end, begin - plain_end), true);
    ++range;
  }
}

bool Str::is_said_at(size_t at) const {
  const auto range = std::partition_point(said.begin(), said.end(), [&](const TextRange& r) { return r.end <= at; });
  return range != said.end() && range->begin <= at;
}

// ---- Dict ----

uint64_t Dict::hash(const Value& key) const {
  if (key.is_string()) return keyed_hash(key.view(), heap->key());
  if (!key.is_number()) return static_cast<uint64_t>(key.type());
  const double number = key.real();  // 1, 1.0 and true are the same key
  const bool is_whole = std::fabs(number) < 9.0e15 && std::floor(number) == number;
  return keyed_hash(is_whole ? static_cast<uint64_t>(static_cast<int64_t>(number)) : 1, heap->key()) >> 20;
}

template <class Same>
const Dict::Entry* Dict::find_if(uint64_t hash, const Same& same) const {
  if (slots.empty()) {
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return same(entry.key); });
    return at == entries.end() ? nullptr : &*at;
  }
  for (size_t i = hash; slots[i % slots.size()] != 0; ++i) {
    const Entry& entry = entries[slots[i % slots.size()] - 1];
    if (same(entry.key)) return &entry;
  }
  return nullptr;
}

const Value* Dict::find(string_view key) const {
  const auto same = [&](const Value& other) { return other.is_string() && other.view() == key; };
  const Entry* entry = find_if(slots.empty() ? 0 : keyed_hash(key, heap->key()), same);
  return entry == nullptr ? nullptr : &entry->value;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.view());
  const auto same = [&](const Value& other) { return are_equal(other, key); };
  const Entry* entry = find_if(slots.empty() ? 0 : hash(key), same);
  return entry == nullptr ? nullptr : &entry->value;
}

void Dict::add_slot(uint32_t entry) {
  size_t i = hash(entries[entry].key);
  while (slots[i % slots.size()] != 0) ++i;
  slots[i % slots.size()] = entry + 1;
}

void Dict::set(const Value& key, const Value& value) {
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = value;
    return;
  }
  constexpr size_t kFew = 8;  // are faster searched one by one
  entries.push_back({key, value});
  if (entries.size() <= kFew) return;
  if (2 * entries.size() > slots.size()) {
    slots.assign(4 * entries.size(), 0);
    for (uint32_t i = 0; i < entries.size(); ++i) add_slot(i);
  } else {
    add_slot(static_cast<uint32_t>(entries.size() - 1));
  }
}

// ---- what Python does with values ----

const char* type_name(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
    case Type::kLargeInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return "str";
    case Type::kDict:
      return "dict";
    case Type::kSequence: {
      constexpr const char* kNames[] = {"list",      "tuple",     "tuple",       "range",
                                        "generator", "dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<size_t>(value.sequence().kind)];
    }
    case Type::kNamespace:
      return "Namespace";
    case Type::kMacro:
      return "Macro";
    case Type::kMethod:
      return "method";
    case Type::kLoop:
      return "LoopContext";
    case Type::kCycler:
      return "Cycler";
    case Type::kJoiner:
      return "Joiner";
    case Type::kFunction:
    case Type::kScope:
      break;
  }
  return "function";
}

bool is_true(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return value.integer() != 0;
    case Type::kFloat:
      return value.real() != 0;
    case Type::kString:
      return !value.view().empty();
    case Type::kDict:
      return !value.dict().entries.empty();
    case Type::kSequence:
      return value.sequence().kind == SeqKind::kIterator || !value.sequence().items.empty();
    default:
      return true;
  }
}

namespace {

// One step of a walk through a value; false where it ends, and whoever renders then sees why.
bool walk(const Value& value, uint32_t depth) {
  if (!value.is_object()) return true;
  Heap& heap = *value.object()->heap;
  if (depth > kMaxValueDepth) heap.is_too_deep = true;
  return ++heap.n_steps <= kMaxSteps && !heap.is_too_deep;
}

}  // namespace

bool is_said(const Value& value, uint32_t depth) {
  if (!value.is_string() && !walk(value, depth)) return true;
  if (value.is_string() || value.is(Type::kLargeInt)) return !value.text().said.empty();
  if (value.is_sequence()) {
    const auto& items = value.sequence().items;
    return std::any_of(items.begin(), items.end(), [&](const Value& item) { return is_said(item, depth + 1); });
  }
  if (value.is_dict()) {
    const auto& entries = value.dict().entries;
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Dict::Entry& entry) { return is_said(entry.key) || is_said(entry.value, depth + 1); });
  }
  return value.is_said();
}

bool are_equal(const Value& a, const Value& b, uint32_t depth) {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.type() != b.type()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is(Type::kFunction)) return a.integer() == b.integer();
  if (a.is_string() || a.is(Type::kLargeInt)) return a.view() == b.view();
  if (a.object() == b.object()) return true;
  if (!walk(a, depth)) return false;
  if (a.is_sequence()) {
    const Seq &left = a.sequence(), &right = b.sequence();
    if (left.is_tuple() != right.is_tuple() || (left.kind != right.kind && !left.is_tuple())) return false;
    return left.kind != SeqKind::kIterator &&
           std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(),
                      [&](const Value& x, const Value& y) { return are_equal(x, y, depth + 1); });
  }
  if (!a.is_dict() || a.dict().entries.size() != b.dict().entries.size()) return false;
  return std::all_of(a.dict().entries.begin(), a.dict().entries.end(), [&](const Dict::Entry& entry) {
    const Value* other = b.dict().find(entry.key);
    return other != nullptr && are_equal(entry.value, *other, depth + 1);
  });
}

int compare(const Value& a, const Value& b, uint32_t depth) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_integer() && b.is_integer()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.real(), b.real());
  if (a.is_string() && b.is_string()) return order(a.view(), b.view());  // UTF-8 sorts as its code points do
  if (!a.is_sequence() || !b.is_sequence() || !walk(a, depth)) return 2;
  const Seq &left = a.sequence(), &right = b.sequence();
  if (left.is_tuple() != right.is_tuple() || left.kind > SeqKind::kGroup || right.kind > SeqKind::kGroup) return 2;
  for (size_t i = 0; i < left.items.size() && i < right.items.size(); ++i) {
    if (!are_equal(left.items[i], right.items[i])) return compare(left.items[i], right.items[i], depth + 1);
  }
  return order(left.items.size(), right.items.size());
}

bool can_be_key(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_sequence()) return true;
  const Seq& sequence = value.sequence();
  return sequence.is_tuple() && std::all_of(sequence.items.begin(), sequence.items.end(), can_be_key);
}

void put_real(std::pmr::string& out, double number) {
  if (std::isnan(number)) return void(out += "nan");
  if (std::signbit(number)) out += '-';
  if (std::isinf(number)) return void(out += "inf");
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof(digits), std::fabs(number), std::chars_format::scientific).ptr;
  const string_view all(digits, static_cast<size_t>(end - digits));
  const size_t e = all.find('e');
  int exponent = 0;
  std::from_chars(digits + e + (all[e + 1] == '+' ? 2 : 1), end, exponent);
  std::pmr::string mantissa(all.substr(0, e), out.get_allocator());
  if (mantissa.size() > 1) mantissa.erase(1, 1);  // the point
  const int n = static_cast<int>(mantissa.size());
  if (exponent < -4 || exponent >= 16) {
    out += mantissa[0];
    if (n > 1) out.append(".").append(mantissa, 1);
    char text[8];
    c_format(text, sizeof(text), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    out += text;
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(mantissa);
  } else {
    mantissa.append(static_cast<size_t>(std::max(0, exponent + 2 - n)), '0');
    const size_t whole = static_cast<size_t>(exponent) + 1;
    out.append(mantissa, 0, whole).append(".").append(mantissa, whole);
  }
}

namespace {

void put_integer(std::pmr::string& out, int64_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

void put_quoted(std::pmr::string& out, string_view text) {
  const bool has_single = text.find('\'') != string_view::npos;
  const char quote = has_single && text.find('"') == string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t i = 0, n; i < text.size(); i += n) {
    const uint32_t code = code_at(text, i, n);
    char escape[12] = "";
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      c_format(escape, sizeof(escape), "\\%c", static_cast<char>(code));
    } else if (code == '\n' || code == '\r' || code == '\t') {
      c_format(escape, sizeof(escape), "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    } else if (code < 0x110000 && !is_printable(code)) {
      c_format(escape, sizeof(escape), code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    }
    if (escape[0] == 0) {
      out.append(text.substr(i, n));
    } else {
      out += escape;
    }
  }
  out += quote;
}

void put_items(std::pmr::string& out, const Seq& sequence, uint32_t depth) {
  if (sequence.kind == SeqKind::kRange || sequence.kind == SeqKind::kIterator) {
    out += sequence.kind == SeqKind::kRange ? "range(...)" : "<generator object>";
    return;
  }
  const bool is_view = sequence.kind > SeqKind::kIterator;
  if (is_view) out.append(type_name(Value(const_cast<Seq*>(&sequence)))).append("(");
  out += sequence.is_tuple() ? '(' : '[';
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out += ", ";
    put_repr(out, sequence.items[i], depth + 1);
  }
  if (sequence.is_tuple() && sequence.items.size() == 1) out += ',';
  out += sequence.is_tuple() ? ')' : ']';
  if (is_view) out += ')';
}

}  // namespace

void put_repr(std::pmr::string& out, const Value& value, uint32_t depth) {
  if (out.size() > kMaxTextBytes || (!value.is_string() && !walk(value, depth))) return;
  switch (value.type()) {
    case Type::kUndefined:
      return void(out += "Undefined");
    case Type::kNone:
      return void(out += "None");
    case Type::kBool:
      return void(out += value.integer() != 0 ? "True" : "False");
    case Type::kInt:
      return put_integer(out, value.integer());
    case Type::kFloat:
      return put_real(out, value.real());
    case Type::kString:
      return put_quoted(out, value.view());
    case Type::kLargeInt:
      return void(out += value.view());
    case Type::kSequence:
      return put_items(out, value.sequence(), depth);
    case Type::kDict:
      out += '{';
      for (const Dict::Entry& entry : value.dict().entries) {
        if (&entry != &value.dict().entries.front()) out += ", ";
        put_repr(out, entry.key, depth + 1);
        out += ": ";
        put_repr(out, entry.value, depth + 1);
      }
      return void(out += '}');
    default:
      out.append("<").append(type_name(value)).append(">");
  }
}

void put_text(Str& out, const Value& value) {
  if (value.is_undefined()) return;
  if (value.is_string()) return out.append(value.text());
  std::pmr::string text(out.text.get_allocator());
  put_repr(text, value);
  out.append(text, is_said(value));
}

}  // namespace weir::jinja
