// Values of the template language.
#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/c_format.h"

namespace weir::jinja {

using std::string_view;

// ---- Str ----

void Str::append(string_view more, bool is_said) {
  if (more.empty()) return;
  if (is_said && !said.empty() && said.back().end == text.size()) {
    said.back().end += more.size();
  } else if (is_said) {
    said.push_back({text.size(), text.size() + more.size()});
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

Str* make_text(Heap& heap, string_view text, bool is_said) {
  Str* made = heap.make<Str>(&heap);
  made->append(text, is_said);
  return made;
}

// ---- Dict ----

namespace {

template <class T>
Heap& heap_of(const std::pmr::vector<T>& items) {
  return static_cast<Heap&>(*items.get_allocator().resource());
}

}  // namespace

const Value* Dict::find(string_view key) const {
  const auto is_key = [&](const Entry& entry) { return entry.key.is_string() && entry.key.view() == key; };
  if (slots.empty()) {
    const auto at = std::find_if(entries.begin(), entries.end(), is_key);
    return at == entries.end() ? nullptr : &at->value;
  }
  for (size_t i = keyed_hash(key, heap_of(entries).key); slots[i % slots.size()] != 0; ++i) {
    const Entry& entry = entries[slots[i % slots.size()] - 1];
    if (is_key(entry)) return &entry.value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.view());
  heap_of(entries).n_steps += entries.size() / 8;  // other keys are few, and searched one by one
  for (const Entry& entry : entries) {
    if (are_equal(entry.key, key)) return &entry.value;
  }
  return nullptr;
}

void Dict::add_slot(uint32_t entry) {
  if (!entries[entry].key.is_string()) return;
  size_t i = keyed_hash(entries[entry].key.view(), heap_of(entries).key);
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
  constexpr const char* kTypes[] = {"Undefined", "NoneType",    "bool", "int",  "float",     "function",
                                    "str",       "int",         "",     "dict", "Namespace", "Macro",
                                    "method",    "LoopContext", ""};
  constexpr const char* kKinds[] = {"list",      "tuple",     "tuple",       "range",
                                    "generator", "dict_keys", "dict_values", "dict_items"};
  return value.is_sequence() ? kKinds[static_cast<size_t>(value.sequence().kind)]
                             : kTypes[static_cast<size_t>(value.type())];
}

bool is_true(const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      return value.real() != 0;
    case Type::kString:
      return !value.view().empty();
    case Type::kDict:
      return !value.dict().entries.empty();
    case Type::kSequence:
      return value.sequence().kind == SeqKind::kIterator || !value.items().empty();
    default:
      return true;
  }
}

namespace {

// One step of a walk through a value; false where it ends, and whoever renders then sees why.
bool walk(const Value& value, uint32_t depth) {
  if (!value.is_sequence() && !value.is_dict()) return true;
  Heap& heap = value.is_dict() ? heap_of(value.dict().entries) : heap_of(value.items());
  if (depth > kMaxValueDepth) heap.is_too_deep = true;
  return ++heap.n_steps <= kMaxSteps && !heap.is_too_deep;
}

}  // namespace

bool is_said(const Value& value, uint32_t depth) {
  if (value.is_string() || value.is(Type::kLargeInt)) return !value.text().said.empty();
  if (!walk(value, depth)) return true;
  if (value.is_sequence())
    return std::any_of(value.items().begin(), value.items().end(),
                       [&](const Value& item) { return is_said(item, depth + 1); });
  if (!value.is_dict()) return value.is_said();
  const auto& entries = value.dict().entries;
  return std::any_of(entries.begin(), entries.end(), [&](const Dict::Entry& entry) {
    return is_said(entry.key, depth + 1) || is_said(entry.value, depth + 1);
  });
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
  if (!a.is_list() || !b.is_list() || a.sequence().is_tuple() != b.sequence().is_tuple() || !walk(a, depth)) return 2;
  const auto &left = a.items(), &right = b.items();
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!are_equal(left[i], right[i])) return compare(left[i], right[i], depth + 1);
  }
  return order(left.size(), right.size());
}

bool can_be_key(const Value& value) {
  if (!value.is_sequence()) return !value.is_dict();
  return value.sequence().is_tuple() && std::all_of(value.items().begin(), value.items().end(), can_be_key);
}

namespace {

// Python's repr(float): the shortest digits that give the number back.
void put_real(std::pmr::string& out, double number) {
  if (std::isnan(number)) return void(out += "nan");
  if (std::signbit(number)) out += '-';
  if (std::isinf(number)) return void(out += "inf");
  char digits[40];
  number = std::fabs(number);
  const bool is_long = number != 0 && (number < 1e-4 || number >= 1e16);
  const auto form = is_long ? std::chars_format::scientific : std::chars_format::fixed;
  const string_view all(digits,
                        static_cast<size_t>(std::to_chars(digits, digits + sizeof(digits), number, form).ptr - digits));
  out.append(all);
  if (!is_long && all.find('.') == string_view::npos) out += ".0";
}

// Characters that Python does not show as they are: controls, spaces but the common one, formats, private ones.
bool is_hidden(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD || (code > 0xA0 && is_space(code)) ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x202A && code <= 0x202E) || code == 0xFEFF ||
         (code >= 0x2060 && code <= 0x206F) || (code >= 0xD800 && code < 0xF900) || code >= 0xE0000;
}

void put_quoted(std::pmr::string& out, string_view text) {
  const bool has_single = text.find('\'') != string_view::npos;
  const char quote = has_single && text.find('"') == string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t i = 0, n; i < text.size(); i += n) {
    const uint32_t code = code_at(text, i, n);
    const char* control = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : nullptr;
    if (control != nullptr) {
      out += control;
    } else if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out.append("\\").append(text.substr(i, n));
    } else if (code < 0x110000 && is_hidden(code)) {
      char escape[12];
      c_format(escape, sizeof(escape), code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
      out += escape;
    } else {
      out.append(text.substr(i, n));
    }
  }
  out += quote;
}

void put_items(std::pmr::string& out, const Value& value, uint32_t depth) {
  const Seq& sequence = value.sequence();
  if (sequence.kind == SeqKind::kRange || sequence.kind == SeqKind::kIterator)
    return void(out += sequence.kind == SeqKind::kRange ? "range(...)" : "<generator object>");
  const bool is_view = sequence.kind > SeqKind::kIterator;
  if (is_view) out.append(type_name(value)).append("(");
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
    case Type::kInt: {
      char digits[24];
      return void(out.append(digits, std::to_chars(digits, digits + sizeof(digits), value.integer()).ptr));
    }
    case Type::kFloat:
      return put_real(out, value.real());
    case Type::kString:
      return put_quoted(out, value.view());
    case Type::kLargeInt:
      return void(out += value.view());
    case Type::kSequence:
      return put_items(out, value, depth);
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
