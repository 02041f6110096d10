// Values of the template language.
#include "text/jinja/value.h"

#include <algorithm>

namespace weir::jinja {

using std::string_view;

Str* make_text(Heap& heap, string_view text, bool is_said) {
  Str* made = heap.make<Str>(&heap);
  made->append(text, is_said);
  return made;
}

namespace {

thread_local Heap* t_rendering = nullptr;

// Counts steps, where there is a rendering; false where there were too many.
bool spend(uint64_t n_steps) { return t_rendering == nullptr || (t_rendering->n_steps += n_steps) <= kMaxSteps; }
bool read(size_t n_bytes) { return spend(n_bytes / kStepBytes); }

const HashKey& key_of(const Dict& dict) {
  return static_cast<const Heap*>(dict.entries.get_allocator().resource())->key;
}

}  // namespace

Counting::Counting(Heap& heap) : before_(std::exchange(t_rendering, &heap)) {}
Counting::~Counting() { t_rendering = before_; }

const Value* Dict::find(string_view key) const {
  if (!read(key.size())) return nullptr;
  const auto is_key = [&](const Entry& entry) { return entry.key.is_string() && entry.key.view() == key; };
  if (slots.empty()) {
    const auto at = std::find_if(entries.begin(), entries.end(), is_key);
    return at == entries.end() ? nullptr : &at->value;
  }
  for (size_t i = keyed_hash(key, key_of(*this)); slots[i % slots.size()] != 0; ++i) {
    const Entry& entry = entries[slots[i % slots.size()] - 1];
    if (is_key(entry)) return &entry.value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.view());
  if (!spend(entries.size() / 8)) return nullptr;  // other keys are few, and searched one by one
  for (const Entry& entry : entries) {
    if (are_equal(entry.key, key)) return &entry.value;
  }
  return nullptr;
}

void Dict::add_slot(uint32_t entry) {
  if (!entries[entry].key.is_string()) return;
  size_t i = keyed_hash(entries[entry].key.view(), key_of(*this));
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
  const bool grows = 2 * entries.size() > slots.size();
  if (grows) slots.assign(4 * entries.size(), 0);
  for (size_t i = grows ? 0 : entries.size() - 1; i < entries.size(); ++i) add_slot(static_cast<uint32_t>(i));
}

// ---- what Python does with values ----

const char* type_name(const Value& value) {
  constexpr const char* kTypes[] = {"Undefined", "NoneType", "bool",      "int",   "float",    "str",        "int",
                                    "",          "dict",     "Namespace", "Macro", "function", "LoopContext"};
  constexpr const char* kKinds[] = {"list",      "tuple",     "tuple",       "range",
                                    "generator", "dict_keys", "dict_values", "dict_items"};
  return value.is_sequence() ? kKinds[static_cast<size_t>(value.sequence().kind)]
                             : kTypes[static_cast<size_t>(value.type())];
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.real() != 0;
  if (value.is_string()) return !value.view().empty();
  if (value.is_dict()) return !value.dict().entries.empty();
  return !value.is_sequence() || value.sequence().kind == SeqKind::kIterator || !value.items().empty();
}

namespace {

// A step of a walk through a value, and some for many items; false where it ends, and whoever renders then sees why.
bool walk(const Value& value, uint32_t depth) {
  if (!value.is_sequence() && !value.is_dict() && !value.is(Type::kNamespace)) return true;
  if (depth > kMaxValueDepth && t_rendering != nullptr) t_rendering->is_too_deep = true;
  const size_t n_items = value.is_sequence() ? value.items().size() : value.dict().entries.size();
  return spend(1 + n_items / kStepItems) && depth <= kMaxValueDepth &&
         (t_rendering == nullptr || !t_rendering->is_too_deep);
}

}  // namespace

bool is_said(const Value& value, uint32_t depth) {
  const auto is_one = [&](const Value& part) { return is_said(part, depth + 1); };
  if (value.is_string() || value.is(Type::kLargeInt))
    return !read(value.view().size()) || value.text().said.find('\1') != string_view::npos;
  if (!walk(value, depth)) return true;
  if (value.is_sequence()) return std::any_of(value.items().begin(), value.items().end(), is_one);
  if (!value.is_dict() && !value.is(Type::kNamespace)) return value.is_said();
  const auto& entries = value.dict().entries;
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Dict::Entry& entry) { return is_one(entry.key) || is_one(entry.value); });
}

bool are_equal(const Value& a, const Value& b, uint32_t depth) {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.type() != b.type()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string() || a.is(Type::kLargeInt))
    return a.view().size() == b.view().size() && read(a.view().size()) && a.view() == b.view();
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
  if (a.is_string() && b.is_string() && !read(std::min(a.view().size(), b.view().size()))) return 0;
  if (a.is_string() && b.is_string()) return order(a.view(), b.view());  // UTF-8 sorts as its code points do
  if (!a.is_list() || !b.is_list() || a.sequence().is_tuple() != b.sequence().is_tuple() || !walk(a, depth)) return 2;
  const auto &left = a.items(), &right = b.items();
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!are_equal(left[i], right[i])) return compare(left[i], right[i], depth + 1);
  }
  return order(left.size(), right.size());
}

bool can_be_key(const Value& value, uint32_t depth) {
  if (!value.is_sequence()) return !value.is_dict();
  const auto can_part = [&](const Value& part) { return can_be_key(part, depth + 1); };
  if (!walk(value, depth)) return true;
  return value.sequence().is_tuple() && std::all_of(value.items().begin(), value.items().end(), can_part);
}

}  // namespace weir::jinja
