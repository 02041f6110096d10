// The filters of the language.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/c_format.h"
#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {
namespace {

using std::string_view;

bool flag(const Args& args, size_t i, bool otherwise) { return args.has(i) ? is_true(args[i]) : otherwise; }

int64_t whole(Run& run, const Args& args, size_t i, int64_t otherwise) {
  if (!args.has(i) || args[i].is_none()) return otherwise;
  if (!args[i].is_integer()) run.error("an integer was expected, not '%s'", type_name(args[i]));
  return args[i].is_integer() ? args[i].integer() : otherwise;
}

// ---- what several filters do with items ----

// The attribute that the argument names, such as "function.name" or 0.
Value attribute_path(Run& run, const Value& item, const Value& path) {
  if (!path.is_string()) return run.item(item, path, nullptr);
  Value at = item;
  for (string_view rest = path.view(); !run.failed();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const string_view part = rest.substr(0, end);
    int64_t index = 0;
    const auto result = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && result.ec == std::errc() && result.ptr == part.data() + part.size();
    at = run.item(at, is_index ? Value::integer(index) : Value(run.make_text(part)), nullptr);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return at;
}

// What items are compared by.
Value sort_key(Run& run, const Value& item, const Value* attribute, bool case_counts) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) key = attribute_path(run, item, *attribute);
  return key.is_string() && !case_counts ? with_case(run, key.text(), Case::kLower) : key;
}

Value sort_keys(Run& run, const Value& item, const Value* attributes, bool case_counts) {
  if (attributes == nullptr || !attributes->is_string() || attributes->view().find(',') == string_view::npos)
    return sort_key(run, item, attributes, case_counts);
  Seq* keys = run.make_list();
  const Value kept = keys;
  for (string_view rest = attributes->view(); !run.failed();) {
    const size_t end = std::min(rest.find(','), rest.size());
    const Value attribute = run.make_text(rest.substr(0, end));
    keys->items.push_back(sort_key(run, item, &attribute, case_counts));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return kept;
}

struct Keyed {
  Value key, item;
};

// By their keys, stable.
void sort_items(Run& run, std::pmr::vector<Keyed>& items, bool is_reverse) {
  if (!run.spend(items.size() * 20)) return;
  bool is_mixed = false;
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    const int order = compare(a.key, b.key);
    is_mixed = is_mixed || order == 2;
    return order != 2 && (is_reverse ? order > 0 : order < 0);
  });
  if (is_mixed) run.error("values of different types cannot be ordered");
}

Value sorted_list(Run& run, const std::pmr::vector<Keyed>& items) {
  Seq* list = run.make_list();
  const Value kept = list;
  for (const Keyed& entry : items) list->items.push_back(entry.item);
  return kept;
}

std::pmr::vector<Keyed> keyed_items(Run& run, const Value& of, const Value* attributes, bool case_counts) {
  std::pmr::vector<Keyed> items(&run.heap);
  const Value list = run.items_of(of);
  for (size_t i = 0; !run.failed() && i < list.sequence().items.size(); ++i) {
    const Value& item = list.sequence().items[i];
    items.push_back({sort_keys(run, item, attributes, case_counts), item});
  }
  return items;
}

const Value* given(const Args& args, size_t i) { return args.has(i) ? &args[i] : nullptr; }

// ---- filters ----

Value f_abs(Run& run, const Value& self, const Args&) {
  if (!self.is_number()) return run.error("bad operand type for abs(): '%s'", type_name(self));
  if (self.is(Type::kFloat)) return Value::real(std::fabs(self.real()), self.is_said());
  return self.integer() >= 0 ? Value::integer(self.integer(), self.is_said())
                             : run.binary(Op::kSub, Value::integer(0), self);
}

Value f_attr(Run& run, const Value& self, const Args& args) {
  if (!args[0].is_string() || self.is_dict()) {
    const uint32_t method =
        args[0].is_string() ? find_function(method_table(self.type()), args[0].view()) : kNoFunction;
    return method == kNoFunction ? Value() : run.attribute(self, args[0].view(), nullptr);
  }
  return run.attribute(self, args[0].view(), nullptr);
}

Value f_batch(Run& run, const Value& self, const Args& args) {
  const int64_t n = whole(run, args, 0, 1);
  const Value all = run.items_of(self);
  if (n < 1) return run.error("batch needs a positive number");
  Seq* batches = run.make_list(SeqKind::kIterator);
  const Value kept = batches;
  if (run.failed()) return kept;
  for (const Value& item : all.sequence().items) {
    if (batches->items.empty() || static_cast<int64_t>(batches->items.back().sequence().items.size()) == n)
      batches->items.push_back(run.make_list());
    batches->items.back().sequence().items.push_back(item);
  }
  if (!batches->items.empty() && args.has(1) && !args[1].is_none()) {
    auto& last = batches->items.back().sequence().items;
    while (static_cast<int64_t>(last.size()) < n && run.spend(1)) last.push_back(args[1]);
  }
  return kept;
}

Value f_slice(Run& run, const Value& self, const Args& args) {
  const int64_t n = whole(run, args, 0, 1);
  const Value all = run.items_of(self);
  if (n < 1) return run.error("slice needs a positive number");
  Seq* slices = run.make_list(SeqKind::kIterator);
  const Value kept = slices;
  if (run.failed()) return kept;
  const auto& items = all.sequence().items;
  const size_t per_slice = items.size() / static_cast<size_t>(n), n_longer = items.size() % static_cast<size_t>(n);
  size_t at = 0;
  for (size_t i = 0; i < static_cast<size_t>(n) && run.spend(1); ++i) {
    Seq* slice = run.make_list();
    slices->items.push_back(slice);
    for (const size_t end = at + per_slice + (i < n_longer ? 1 : 0); at < end; ++at) slice->items.push_back(items[at]);
    if (args.has(1) && !args[1].is_none() && n_longer > 0 && i >= n_longer) slice->items.push_back(args[1]);
  }
  return kept;
}

Value f_capitalize(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), Case::kCapital);
}

Value f_center(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self), width = Value::integer(whole(run, args, 0, 80));
  Args more(&run.heap);
  more.list.push_back(width);
  const auto methods = text_methods();
  return run.failed() ? Value() : run.call(methods[find_function(methods, "center")], text, more);
}

Value f_default(Run& run, const Value& self, const Args& args) {
  const bool is_missing = self.is_undefined() || (flag(args, 1, false) && !is_true(self));
  return !is_missing ? self : args.has(0) ? args[0] : Value(run.make_text());
}

Value f_dictsort(Run& run, const Value& self, const Args& args) {
  if (!self.is_dict()) return run.error("dictsort needs a mapping, not '%s'", type_name(self));
  const bool by_value = args.has(1) && args[1].is_string() && args[1].view() == "value";
  if (args.has(1) && !by_value && (!args[1].is_string() || args[1].view() != "key"))
    return run.error("dictsort sorts by 'key' or 'value'");
  std::pmr::vector<Keyed> items(&run.heap);
  for (const Dict::Entry& entry : self.dict().entries) {
    Seq* pair = run.make_list(SeqKind::kTuple);
    pair->items = {entry.key, entry.value};
    items.push_back({sort_key(run, by_value ? entry.value : entry.key, nullptr, flag(args, 0, false)), pair});
  }
  sort_items(run, items, flag(args, 2, false));
  return sorted_list(run, items);
}

Value f_escape(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  if (run.failed() || !run.has_room(text.view().size() * 5)) return {};
  Str* out = run.make_text();
  const Value kept = out;
  constexpr string_view kLetters = "&<>'\"";
  constexpr string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (size_t i = 0; i < text.view().size();) {
    const size_t at = std::min(text.view().find_first_of(kLetters, i), text.view().size());
    out->append(text.text(), i, at);
    if (at < text.view().size()) out->append(kEscapes[kLetters.find(text.view()[at])], text.text().is_said_at(at));
    i = at + 1;
  }
  return kept;
}

Value f_first(Run& run, const Value& self, const Args&) {
  if (self.is_sequence() && self.sequence().kind == SeqKind::kIterator) {
    auto& items = self.sequence().items;
    if (items.empty()) return {};
    const Value item = items.front();
    items.erase(items.begin());
    return item;
  }
  if (self.is_string()) return run.sliced(self, Value::none(), Value::integer(1), Value::none());
  const Value list = run.items_of(self);
  return run.failed() || list.sequence().items.empty() ? Value() : list.sequence().items.front();
}

Value f_last(Run& run, const Value& self, const Args&) {
  if (self.is_sequence() && self.sequence().kind == SeqKind::kIterator)
    return run.error("'generator' object is not reversible");
  const Value list = run.items_of(self);
  return run.failed() || list.sequence().items.empty() ? Value() : list.sequence().items.back();
}

// As Python reads numbers: white space around them, underscores between digits.
bool read_real(string_view text, double& out) {
  while (!text.empty() && is_space(static_cast<uint8_t>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<uint8_t>(text.back()))) text.remove_suffix(1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

Value f_float(Run& run, const Value& self, const Args& args) {
  if (self.is_undefined()) return run.binary(Op::kAdd, self, self);  // the error of whatever needs a value
  if (self.is_number()) return Value::real(self.real(), self.is_said());
  double number = 0;
  if (self.is_string() && read_real(self.view(), number)) return Value::real(number, is_said(self));
  return args.has(0) ? args[0] : Value::real(0);
}

Value f_int(Run& run, const Value& self, const Args& args) {
  const Value otherwise = args.has(0) ? args[0] : Value::integer(0);
  const int64_t base = whole(run, args, 1, 10);
  if (self.is_undefined()) return run.binary(Op::kAdd, self, self);
  if (self.is_integer()) return Value::integer(self.integer(), self.is_said());
  double number = 0;
  if (self.is_string()) {
    string_view text = trimmed(run, self.text(), Trim::kBoth, nullptr).view();
    const bool is_minus = text.starts_with('-');
    if (is_minus || text.starts_with('+')) text.remove_prefix(1);
    const char letter = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '0';
    if ((base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b'))
      text.remove_prefix(2);
    int64_t whole_number = 0;
    if (base < 2 || base > 36) return otherwise;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), whole_number, static_cast<int>(base));
    if (!text.empty() && text[0] != '-' && result.ec == std::errc() && result.ptr == text.data() + text.size())
      return Value::integer(is_minus ? -whole_number : whole_number, is_said(self));
    if (!read_real(self.view(), number)) return otherwise;
  } else if (self.is(Type::kFloat)) {
    number = self.real();
  } else {
    return otherwise;
  }
  if (!(std::fabs(number) < 9.2e18)) return otherwise;
  return Value::integer(static_cast<int64_t>(number), is_said(self));
}

Value f_format(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self);
  if (run.failed()) return {};
  if (!args.named.empty()) {
    Dict* named = run.heap.make<Dict>(&run.heap);
    const Value kept = named;
    for (const auto& [name, value] : args.named) named->set(run.make_text(name), value);
    return format_percent(run, text.text(), kept);
  }
  Seq* list = run.make_list(SeqKind::kTuple);
  const Value kept = list;
  list->items.assign(args.list.begin(), args.list.end());
  return format_percent(run, text.text(), kept);
}

Value f_groupby(Run& run, const Value& self, const Args& args) {
  const bool case_counts = flag(args, 2, false);
  std::pmr::vector<Keyed> items(&run.heap);
  const Value list = run.items_of(self);
  for (size_t i = 0; !run.failed() && i < list.sequence().items.size(); ++i) {
    const Value& item = list.sequence().items[i];
    Value key = attribute_path(run, item, args[0]);
    if (key.is_undefined() && args.has(1)) key = args[1];
    items.push_back({key.is_string() && !case_counts ? with_case(run, key.text(), Case::kLower) : key, item});
  }
  sort_items(run, items, false);
  Seq* groups = run.make_list();
  const Value kept = groups;
  for (size_t i = 0; i < items.size() && run.spend(1); ++i) {
    if (i == 0 || !are_equal(items[i].key, items[i - 1].key)) {
      Seq* group = run.make_list(SeqKind::kGroup);
      groups->items.push_back(group);
      Value name = attribute_path(run, items[i].item, args[0]);
      if (name.is_undefined() && args.has(1)) name = args[1];
      group->items = {name, run.make_list()};
    }
    groups->items.back().sequence().items[1].sequence().items.push_back(items[i].item);
  }
  return kept;
}

Value f_indent(Run& run, const Value& self, const Args& args) {
  Str* out = run.make_text();
  const Value kept = out, text = self;
  if (!self.is_string()) return run.error("indent takes a text, not '%s'", type_name(self));
  const bool is_text = args.has(0) && args[0].is_string();
  const Value space =
      is_text ? args[0] : run.binary(Op::kMul, run.make_text(" "), Value::integer(whole(run, args, 0, 4)));
  const bool at_first = flag(args, 1, false), at_blank = flag(args, 2, false);
  if (run.failed()) return kept;
  const Value lines = lines_of(run, text.text(), false);
  if (at_first) out->append(space.text());
  auto& items = lines.sequence().items;
  // Jinja puts a line end behind the text first, so an end of its own stays.
  if (text.view().empty() || text.view().ends_with('\n')) items.push_back(run.make_text());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append("\n", text.text().said.empty() ? false : true);
    if (i > 0 && (at_blank || !items[i].view().empty())) out->append(space.text());
    out->append(items[i].text());
    if (!run.has_room(out->text.size())) break;
  }
  return kept;
}

Value f_items(Run& run, const Value& self, const Args&) {
  if (!self.is_dict() && !self.is_undefined()) return run.error("items needs a mapping, not '%s'", type_name(self));
  Seq* list = run.make_list(SeqKind::kIterator);
  const Value kept = list;
  for (size_t i = 0; self.is_dict() && i < self.dict().entries.size() && run.spend(1); ++i) {
    Seq* pair = run.make_list(SeqKind::kTuple);
    list->items.push_back(pair);
    pair->items = {self.dict().entries[i].key, self.dict().entries[i].value};
  }
  return kept;
}

Value f_join(Run& run, const Value& self, const Args& args) {
  const Value list = run.items_of(self), between = args.has(0) ? run.text_of(args[0]) : Value(run.make_text());
  Str* out = run.make_text();
  const Value kept = out;
  if (run.failed()) return kept;
  for (size_t i = 0; i < list.sequence().items.size() && !run.failed(); ++i) {
    Value item = list.sequence().items[i];
    if (args.has(1) && !args[1].is_none()) item = attribute_path(run, item, args[1]);
    item = run.text_of(item);
    if (run.failed() || !run.has_room(out->text.size() + item.view().size())) break;
    if (i > 0) out->append(between.text());
    out->append(item.text());
    run.spend((item.view().size() + between.view().size()) / kStepBytes);
  }
  return kept;
}

Value f_length(Run& run, const Value& self, const Args&) { return Value::integer(run.length_of(self), is_said(self)); }

Value f_list(Run& run, const Value& self, const Args&) {
  const Value items = run.items_of(self);
  Seq* list = run.make_list();
  const Value kept = list;
  if (!run.failed()) list->items.assign(items.sequence().items.begin(), items.sequence().items.end());
  return kept;
}

Value f_lower(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), Case::kLower);
}

Value f_map(Run& run, const Value& self, const Args& args) {
  const Value list = is_true(self) ? run.items_of(self) : Value(run.make_list());
  Seq* out = run.make_list(SeqKind::kIterator);
  const Value kept = out;
  const Value* attribute = args.find("attribute");
  const Value* otherwise = args.find("default");
  if (attribute == nullptr && (args.size() == 0 || !args[0].is_string())) return run.error("map needs a filter's name");
  const uint32_t id = attribute == nullptr ? find_filter(args[0].view()) : kNoFunction;
  for (size_t i = 0; !run.failed() && i < list.sequence().items.size(); ++i) {
    const Value& item = list.sequence().items[i];
    if (attribute != nullptr) {
      const Value found = attribute_path(run, item, *attribute);
      out->items.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : found);
    } else {
      Args more(&run.heap);
      more.list.assign(args.list.begin() + 1, args.list.end());
      more.named.assign(args.named.begin(), args.named.end());
      out->items.push_back(run.filter(id, args[0].view(), item, more));
    }
  }
  return kept;
}

Value extreme(Run& run, const Value& self, const Args& args, bool wants_least) {
  const auto items = keyed_items(run, self, given(args, 1), flag(args, 0, false));
  if (run.failed() || items.empty()) return {};
  size_t best = 0;
  for (size_t i = 1; i < items.size() && run.spend(1); ++i) {
    const int order = compare(items[i].key, items[best].key);
    if (order == 2) return run.error("values of different types cannot be ordered");
    if (wants_least ? order < 0 : order > 0) best = i;
  }
  return items[best].item;
}
Value f_max(Run& run, const Value& self, const Args& args) { return extreme(run, self, args, false); }
Value f_min(Run& run, const Value& self, const Args& args) { return extreme(run, self, args, true); }

// select, reject, selectattr, rejectattr: those items for which a test holds, or which are true.
Value chosen(Run& run, const Value& self, const Args& args, bool by_attribute, bool wanted) {
  const Value list = is_true(self) ? run.items_of(self) : Value(run.make_list());
  Seq* out = run.make_list(SeqKind::kIterator);
  const Value kept = out;
  const size_t first = by_attribute ? 1 : 0;
  if (args.size() < first) return run.error("an attribute's name is missing");
  const bool has_test = args.size() > first;
  if (has_test && !args[first].is_string()) return run.error("a test's name is no text");
  const uint32_t id = has_test ? find_test(args[first].view()) : kNoFunction;
  for (size_t i = 0; !run.failed() && run.spend(1) && i < list.sequence().items.size(); ++i) {
    const Value& item = list.sequence().items[i];
    const Value value = by_attribute ? attribute_path(run, item, args[0]) : item;
    bool holds = is_true(value);
    if (has_test) {
      Args more(&run.heap);
      more.list.assign(args.list.begin() + static_cast<std::ptrdiff_t>(first) + 1, args.list.end());
      holds = run.test(id, args[first].view(), value, more);
    }
    if (holds == wanted) out->items.push_back(item);
  }
  return kept;
}
Value f_select(Run& run, const Value& self, const Args& args) { return chosen(run, self, args, false, true); }
Value f_reject(Run& run, const Value& self, const Args& args) { return chosen(run, self, args, false, false); }
Value f_selectattr(Run& run, const Value& self, const Args& args) { return chosen(run, self, args, true, true); }
Value f_rejectattr(Run& run, const Value& self, const Args& args) { return chosen(run, self, args, true, false); }

Value f_replace(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self), from = run.text_of(args[0]), to = run.text_of(args[1]);
  const int64_t n_most = whole(run, args, 2, -1);
  return run.failed() ? Value() : replaced(run, text.text(), from.text(), to.text(), n_most);
}

Value f_reverse(Run& run, const Value& self, const Args&) {
  if (self.is_string()) return run.sliced(self, Value::none(), Value::none(), Value::integer(-1));
  const Value items = run.items_of(self);
  Seq* out = run.make_list(SeqKind::kIterator);
  const Value kept = out;
  if (!run.failed()) out->items.assign(items.sequence().items.rbegin(), items.sequence().items.rend());
  return kept;
}

Value f_round(Run& run, const Value& self, const Args& args) {
  const int64_t precision = whole(run, args, 0, 0);
  const string_view how = args.has(1) && args[1].is_string() ? args[1].view() : "common";
  if (!self.is_number()) return run.error("round needs a number, not '%s'", type_name(self));
  if (how == "common") {
    if (self.is_integer() && precision >= 0) return Value::integer(self.integer(), self.is_said());
    double number = self.real();
    if (precision >= 0 && precision < 300 && std::isfinite(number)) {
      char text[800];
      c_format(text, sizeof(text), "%.*f", static_cast<int>(precision), number);
      read_real(text, number);
    } else if (precision < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-precision));
      number = std::nearbyint(number / unit) * unit;
    }
    return self.is_integer() ? Value::integer(static_cast<int64_t>(number), self.is_said())
                             : Value::real(number, self.is_said());
  }
  if (how != "ceil" && how != "floor") return run.error("round knows common, ceil and floor");
  const double unit = std::pow(10.0, static_cast<double>(precision)), scaled = self.real() * unit;
  return Value::real((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit, self.is_said());
}

Value f_safe(Run& run, const Value& self, const Args&) { return run.text_of(self); }

Value f_sort(Run& run, const Value& self, const Args& args) {
  auto items = keyed_items(run, self, given(args, 2), flag(args, 1, false));
  sort_items(run, items, flag(args, 0, false));
  return sorted_list(run, items);
}

Value f_string(Run& run, const Value& self, const Args&) { return run.text_of(self); }

Value f_sum(Run& run, const Value& self, const Args& args) {
  const Value list = run.items_of(self);
  Value total = args.has(1) ? args[1] : Value::integer(0);
  for (size_t i = 0; !run.failed() && run.spend(1) && i < list.sequence().items.size(); ++i) {
    const Value& item = list.sequence().items[i];
    const bool has_attribute = args.has(0) && !args[0].is_none();
    total = run.binary(Op::kAdd, total, has_attribute ? attribute_path(run, item, args[0]) : item);
  }
  return total;
}

Value f_title(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  Str* out = run.make_text();
  const Value kept = out;
  if (run.failed()) return kept;
  // Words begin behind white space and -({[<; what follows is in lower case.
  for (size_t i = 0, end; i < text.view().size(); i = end) {
    const auto begins = [&](size_t at, size_t& n) {
      const uint32_t code = code_at(text.view(), at, n);
      return is_space(code) || (code < 0x80 && string_view("-({[<").find(static_cast<char>(code)) != string_view::npos);
    };
    size_t n;
    const bool is_between = begins(i, n);
    for (end = i + n; end < text.view().size() && begins(end, n) == is_between; end += n) {
    }
    Str* word = run.make_text();
    const Value kept_word = word;
    word->append(text.text(), i, end);
    out->append(is_between ? *word : with_case(run, *word, Case::kCapital).text());
  }
  return kept;
}

Value f_tojson(Run& run, const Value& self, const Args& args) {
  JsonStyle style;
  style.ascii_only = flag(args, 0, false);
  style.indent =
      args.has(1) && args[1].is_string() ? static_cast<int64_t>(args[1].view().size()) : whole(run, args, 1, -1);
  style.item_separator = style.indent >= 0 ? "," : ", ";
  style.key_separator = ": ";
  style.sort_keys = flag(args, 3, false);
  Value separators;
  if (args.has(2) && !args[2].is_none()) {
    separators = run.items_of(args[2]);
    if (run.failed()) return {};
    const auto& items = separators.sequence().items;
    if (items.size() != 2 || !items[0].is_string() || !items[1].is_string())
      return run.error("tojson: separators are two texts");
    style.item_separator = items[0].view();
    style.key_separator = items[1].view();
  }
  return run.failed() ? Value() : to_json(run, self, style);
}

Value f_trim(Run& run, const Value& self, const Args& args) {
  const Value text = run.text_of(self);
  return run.failed() ? Value() : trimmed(run, text.text(), Trim::kBoth, args.has(0) ? &args[0] : nullptr);
}

Value f_truncate(Run& run, const Value& self, const Args& args) {
  if (!self.is_string()) return run.error("truncate takes a text, not '%s'", type_name(self));
  const Value text = self, end = args.has(2) ? run.text_of(args[2]) : Value(run.make_text("..."));
  const int64_t n = whole(run, args, 0, 255), leeway = whole(run, args, 3, 5);
  const int64_t n_end = run.length_of(end);
  if (run.failed() || run.length_of(text) <= n + leeway) return text;
  if (n < n_end) return run.error("truncate: the length is less than that of the end");
  Value cut = run.sliced(text, Value::none(), Value::integer(n - n_end), Value::none());
  if (!flag(args, 1, false)) {
    const size_t space = cut.view().rfind(' ');
    if (space != string_view::npos) {
      Str* word = run.make_text();
      word->append(cut.text(), 0, space);
      cut = word;
    }
  }
  return run.binary(Op::kAdd, cut, end);
}

Value f_unique(Run& run, const Value& self, const Args& args) {
  const auto items = keyed_items(run, self, given(args, 1), flag(args, 0, false));
  Seq* out = run.make_list(SeqKind::kIterator);
  Dict* seen = run.heap.make<Dict>(&run.heap);
  const Value kept = out, kept_seen = seen;
  for (const Keyed& entry : items) {
    if (!run.spend(1)) break;
    if (!can_be_key(entry.key)) return run.error("unhashable type: '%s'", type_name(entry.key));
    if (seen->find(entry.key) != nullptr) continue;
    seen->set(entry.key, Value::none());
    out->items.push_back(entry.item);
  }
  return kept;
}

Value f_upper(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), Case::kUpper);
}

Value f_urlencode(Run& run, const Value& self, const Args&) {
  if (self.is_dict() || self.is_sequence()) return run.error("urlencode takes a text here");
  const Value text = run.text_of(self);
  Str* out = run.make_text();
  const Value kept = out;
  for (size_t i = 0; !run.failed() && i < text.view().size(); ++i) {
    const char c = text.view()[i];
    const bool is_plain = (c >= '0' && c <= '9') || (c > 0 && is_letter(static_cast<uint8_t>(c))) ||
                          (c > 0 && string_view("_.-~/").find(c) != string_view::npos);
    char escape[4] = {c};
    if (!is_plain) c_format(escape, sizeof(escape), "%%%02X", static_cast<uint8_t>(c));
    out->append(escape, text.text().is_said_at(i));
  }
  return kept;
}

Value f_wordcount(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self);
  int64_t n = 0;
  bool in_word = false;
  for (size_t i = 0, bytes; !run.failed() && i < text.view().size(); i += bytes) {
    const uint32_t code = code_at(text.view(), i, bytes);
    const bool is_word = is_letter(code) || code == '_' || (code >= '0' && code <= '9');
    if (is_word && !in_word) ++n;
    in_word = is_word;
  }
  return Value::integer(n, is_said(text));
}

constexpr Function kFilters[] = {
    {"abs", "", 0, f_abs},
    {"attr", "name", 1, f_attr},
    {"batch", "linecount,fill_with", 1, f_batch},
    {"capitalize", "", 0, f_capitalize},
    {"center", "width", 0, f_center},
    {"count", "", 0, f_length},
    {"d", "default_value,boolean", 0, f_default},
    {"default", "default_value,boolean", 0, f_default},
    {"dictsort", "case_sensitive,by,reverse", 0, f_dictsort},
    {"e", "", 0, f_escape},
    {"escape", "", 0, f_escape},
    {"first", "", 0, f_first},
    {"float", "default", 0, f_float},
    {"forceescape", "", 0, f_escape},
    {"format", nullptr, 0, f_format},
    {"groupby", "attribute,default,case_sensitive", 1, f_groupby},
    {"indent", "width,first,blank", 0, f_indent},
    {"int", "default,base", 0, f_int},
    {"items", "", 0, f_items},
    {"join", "d,attribute", 0, f_join},
    {"last", "", 0, f_last},
    {"length", "", 0, f_length},
    {"list", "", 0, f_list},
    {"lower", "", 0, f_lower},
    {"map", nullptr, 0, f_map},
    {"max", "case_sensitive,attribute", 0, f_max},
    {"min", "case_sensitive,attribute", 0, f_min},
    {"reject", nullptr, 0, f_reject},
    {"rejectattr", nullptr, 0, f_rejectattr},
    {"replace", "old,new,count", 2, f_replace},
    {"reverse", "", 0, f_reverse},
    {"round", "precision,method", 0, f_round},
    {"safe", "", 0, f_safe},
    {"select", nullptr, 0, f_select},
    {"selectattr", nullptr, 0, f_selectattr},
    {"slice", "slices,fill_with", 1, f_slice},
    {"sort", "reverse,case_sensitive,attribute", 0, f_sort},
    {"string", "", 0, f_string},
    {"sum", "attribute,start", 0, f_sum},
    {"title", "", 0, f_title},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, f_tojson},
    {"trim", "chars", 0, f_trim},
    {"truncate", "length,killwords,end,leeway", 0, f_truncate},
    {"unique", "case_sensitive,attribute", 0, f_unique},
    {"upper", "", 0, f_upper},
    {"urlencode", "", 0, f_urlencode},
    {"wordcount", "", 0, f_wordcount},
};

}  // namespace

std::span<const Function> filter_table() { return kFilters; }

uint32_t find_function(std::span<const Function> table, string_view name) {
  const auto at = std::find_if(table.begin(), table.end(), [&](const Function& f) { return f.name == name; });
  return at == table.end() ? kNoFunction : static_cast<uint32_t>(at - table.begin());
}

}  // namespace weir::jinja
