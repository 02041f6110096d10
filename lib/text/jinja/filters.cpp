// The filters of the language: those of lists and mappings, and the table of all.
#include "text/jinja/filters.h"
#include "text/jinja/merge_sort.h"

#include <algorithm>
#include <charconv>

namespace weir::jinja {
namespace {

using std::string_view;

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
  merge_sort(items, [&](const Keyed& a, const Keyed& b) {
    // Python sorts by lists of keys, in which equal ones, also undefined ones, need no order.
    const int order = are_equal(a.key, b.key) ? 0 : compare(a.key, b.key);
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

Value f_reverse(Run& run, const Value& self, const Args&) {
  if (self.is_string()) return run.sliced(self, Value::none(), Value::none(), Value::integer(-1));
  const Value items = run.items_of(self);
  Seq* out = run.make_list(SeqKind::kIterator);
  const Value kept = out;
  if (!run.failed()) out->items.assign(items.sequence().items.rbegin(), items.sequence().items.rend());
  return kept;
}

Value f_sort(Run& run, const Value& self, const Args& args) {
  auto items = keyed_items(run, self, given(args, 2), flag(args, 1, false));
  sort_items(run, items, flag(args, 0, false));
  return sorted_list(run, items);
}

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
