// The tests, the global functions, the filters of lists and mappings, and the methods of everything but texts.
#include <algorithm>
#include <charconv>

#include "text/jinja/run.h"

namespace weir::jinja {
namespace {

using std::string_view;

// ---- tests ----

template <Op op>
Value t_compare(Run& run, const Value& self, const Args& args) {
  return Value::boolean(run.holds(op, self, args[0]));
}

template <Type... types>
Value t_is(Run&, const Value& self, const Args&) {
  return Value::boolean((self.is(types) || ...));
}

template <bool wanted>
Value t_true(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is(Type::kBool) && (self.integer() != 0) == wanted);
}

Value t_defined(Run&, const Value& self, const Args&) { return Value::boolean(!self.is_undefined()); }

// Whether the rest of a division by the argument, or by 2, is this.
template <int wanted>
Value t_rest(Run& run, const Value& self, const Args& args) {
  const Value rest = run.binary(Op::kMod, self, args.has(0) ? args[0] : Value::integer(2));
  return Value::boolean(are_equal(rest, Value::integer(wanted)));
}

Value t_same(Run&, const Value& self, const Args& args) {
  if (self.type() != args[0].type()) return Value::boolean(false);
  const bool is_object = self.object() != nullptr && !self.is_string();
  return Value::boolean(is_object ? self.object() == args[0].object() : are_equal(self, args[0]));
}

Value t_sequence(Run&, const Value& self, const Args&) {
  const bool is_list = self.is_sequence() && self.sequence().has_items();
  return Value::boolean(is_list || self.is_undefined() || self.is_string() || self.is_dict());
}

constexpr Function kTests[] = {
    {"!=,ne", "other", 1, t_compare<Op::kNe>},
    {"<,lt,lessthan", "other", 1, t_compare<Op::kLt>},
    {"<=,le", "other", 1, t_compare<Op::kLe>},
    {"==,eq,equalto", "other", 1, t_compare<Op::kEq>},
    {">,gt,greaterthan", "other", 1, t_compare<Op::kGt>},
    {">=,ge", "other", 1, t_compare<Op::kGe>},
    {"boolean", "", 0, t_is<Type::kBool>},
    {"callable", "", 0, t_is<Type::kUndefined, Type::kFunction, Type::kMethod, Type::kMacro, Type::kLoop>},
    {"defined", "", 0, t_defined},
    {"divisibleby", "num", 1, t_rest<0>},
    {"even", "", 0, t_rest<0>},
    {"false", "", 0, t_true<false>},
    {"float", "", 0, t_is<Type::kFloat>},
    {"in", "seq", 1, t_compare<Op::kIn>},
    {"integer", "", 0, t_is<Type::kInt, Type::kLargeInt>},
    {"iterable", "", 0, t_is<Type::kUndefined, Type::kString, Type::kDict, Type::kSequence, Type::kLoop>},
    {"mapping", "", 0, t_is<Type::kDict>},
    {"none", "", 0, t_is<Type::kNone>},
    {"number", "", 0, t_is<Type::kBool, Type::kInt, Type::kFloat, Type::kLargeInt>},
    {"odd", "", 0, t_rest<1>},
    {"sameas", "other", 1, t_same},
    {"sequence", "", 0, t_sequence},
    {"string", "", 0, t_is<Type::kString>},
    {"true", "", 0, t_true<true>},
    {"undefined", "", 0, t_is<Type::kUndefined>},
};

// ---- global functions ----

Value g_range(Run& run, const Value&, const Args& args) {
  const bool has_start = args.has(1);
  const int64_t start = has_start ? run.number(args, 0, 0) : 0, step = run.number(args, 2, 1);
  const int64_t stop = run.number(args, has_start ? 1 : 0, 0);
  if (step == 0) return run.error("range() needs a step that is not zero");
  Seq* list = run.new_list(SeqKind::kRange);
  for (int64_t at = start; (step > 0 ? at < stop : at > stop) && run.spend(1);) {
    if (static_cast<int64_t>(list->items.size()) >= kMaxRange)
      return run.refuse(WEIR_ERR_UNSUPPORTED, "range() makes at most 100000 numbers");
    list->items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return list;
}

// dict() and namespace(): of a mapping, then names.
template <Type type>
Value g_mapping(Run& run, const Value&, const Args& args) {
  Dict* dict = run.new_dict();
  if (args.size() > 1 || (args.size() == 1 && !args[0].is_dict())) return run.error("a mapping was expected");
  if (args.size() == 1) *dict = args[0].dict();
  for (const auto& [name, value] : args.named) dict->set(run.new_text(name), value);
  return {type, dict};
}

Value g_raise(Run& run, const Value&, const Args& args) {
  return run.refuse(WEIR_ERR_INVALID_ARG, run.text_of(args[0]).view());
}

constexpr Function kGlobals[] = {
    {"dict", nullptr, 0, g_mapping<Type::kDict>},  {"namespace", nullptr, 0, g_mapping<Type::kNamespace>},
    {"raise_exception", "message", 1, g_raise},    {"range", "start,stop,step", 1, g_range},
    {"strftime_now", "format", 1, g_strftime_now},
};

// ---- methods; those that would change a list or a dict do not exist in the sandbox ----

Value pair_of(Run& run, const Dict::Entry& entry) {
  Seq* pair = run.new_list(SeqKind::kTuple);
  pair->items = {entry.key, entry.value};
  return pair;
}

Value m_get(Run& run, const Value& self, const Args& args) {
  if (!can_be_key(args[0])) return run.error("unhashable type: '%s'", type_name(args[0]));
  const Value* found = self.dict().find(args[0]);
  return found != nullptr ? *found : args.has(1) ? args[1] : Value::none();
}

template <SeqKind kind>
Value m_view(Run& run, const Value& self, const Args&) {
  Seq* list = run.new_list(kind);
  for (const Dict::Entry& entry : self.dict().entries) {
    if (!run.spend(1)) break;
    const Value& one = kind == SeqKind::kKeys ? entry.key : entry.value;
    list->items.push_back(kind == SeqKind::kItems ? pair_of(run, entry) : one);
  }
  return list;
}

// count and index.
template <bool is_count>
Value m_search(Run& run, const Value& self, const Args& args) {
  const auto& items = self.items();
  const auto is_it = [&](const Value& item) { return run.spend(1) && are_equal(item, args[0]); };
  if (is_count) return Value::integer(std::count_if(items.begin(), items.end(), is_it));
  const auto at = std::find_if(items.begin(), items.end(), is_it);
  return at == items.end() ? run.error("the value is not in the list") : Value::integer(at - items.begin());
}

Value m_cycle(Run& run, const Value& self, const Args& args) {
  return args.size() == 0 ? run.error("no items for cycling given") : args[self.as<Loop>().index % args.size()];
}

constexpr Function kDictMethods[] = {
    {"get", "key,default", 1, m_get},
    {"items", "", 0, m_view<SeqKind::kItems>},
    {"keys", "", 0, m_view<SeqKind::kKeys>},
    {"values", "", 0, m_view<SeqKind::kValues>},
};
constexpr Function kListMethods[] = {{"count", "value", 1, m_search<true>}, {"index", "value", 1, m_search<false>}};
constexpr Function kLoopMethods[] = {{"cycle", nullptr, 0, m_cycle}};

// ---- what several filters do with items ----

// The attribute that the argument names, such as "function.name" or 0; the item itself where there is no argument.
Value attribute_of(Run& run, Value item, const Value& path) {
  if (path.is_undefined() || path.is_none()) return item;
  if (!path.is_string()) return run.item(item, path, nullptr);
  const string_view all = path.view();
  for (size_t begin = 0, end; begin <= all.size() && !run.failed(); begin = end + 1) {
    end = std::min(all.find('.', begin), all.size());
    int64_t index = 0;
    const bool is_index = std::from_chars(all.data() + begin, all.data() + end, index).ptr == all.data() + end;
    const Value name = run.new_text(all.substr(begin, end - begin));
    item = run.item(item, is_index && begin < end ? Value::integer(index) : name, nullptr);
  }
  return item;
}

struct Keyed {
  Value key, item;
};

// What items are compared by: texts in lower case unless `case_counts`.
Value sort_key(Run& run, const Value& key, bool case_counts) {
  return key.is_string() && !case_counts ? with_case(run, key.text(), Case::kLower) : key;
}

std::pmr::vector<Keyed> keyed_items(Run& run, const Value& of, const Value& attribute, bool case_counts) {
  std::pmr::vector<Keyed> items(&run.heap);
  if (attribute.is_string() && attribute.view().find(',') != string_view::npos)
    run.error("several attributes at once are not supported");
  const Value list = run.items_of(of);
  for (const Value& item : list.items())
    items.push_back({sort_key(run, attribute_of(run, item, attribute), case_counts), item});
  return items;
}

int order_of(Run& run, const Value& a, const Value& b) {
  const int order = are_equal(a, b) ? 0 : compare(a, b);  // equal ones, also undefined ones, need no order
  if (order == 2) run.error("values of different types cannot be ordered");
  return order == 2 ? 0 : order;
}

// By their keys, stable.
Value sorted(Run& run, std::pmr::vector<Keyed>& items, bool is_reverse) {
  Seq* list = run.new_list();
  const int before = is_reverse ? 1 : -1;
  if (!run.spend(items.size() * 20)) return list;
  merge_sort(items, [&](const Keyed& a, const Keyed& b) { return order_of(run, a.key, b.key) == before; });
  for (const Keyed& entry : items) list->items.push_back(entry.item);
  return list;
}

// ---- filters ----

Value f_batch(Run& run, const Value& self, const Args& args) {
  const int64_t n = run.number(args, 0, 1);
  if (n < 1) return run.error("batch needs a positive number");
  const Value all = run.items_of(self);
  Seq* batches = run.new_list(SeqKind::kIterator);
  for (const Value& item : all.items()) {
    if (batches->items.empty() || run.length_of(batches->items.back()) == n) batches->items.push_back(run.new_list());
    batches->items.back().items().push_back(item);
  }
  while (!batches->items.empty() && args.has_some(1) && run.length_of(batches->items.back()) < n && run.spend(1))
    batches->items.back().items().push_back(args[1]);
  return batches;
}

Value f_default(Run& run, const Value& self, const Args& args) {
  const bool is_missing = self.is_undefined() || (args.flag(1) && !is_true(self));
  return !is_missing ? self : args.has(0) ? args[0] : run.new_text();
}

Value f_dictsort(Run& run, const Value& self, const Args& args) {
  if (!self.is_dict()) return run.error("dictsort needs a mapping, not '%s'", type_name(self));
  const string_view by = args.has(1) && args[1].is_string() ? args[1].view() : "key";
  if (by != "key" && by != "value") return run.error("dictsort sorts by 'key' or 'value'");
  std::pmr::vector<Keyed> items(&run.heap);
  for (const Dict::Entry& entry : self.dict().entries)
    items.push_back({sort_key(run, by == "key" ? entry.key : entry.value, args.flag(0)), pair_of(run, entry)});
  return sorted(run, items, args.flag(2));
}

template <bool is_last>
Value f_end(Run& run, const Value& self, const Args&) {
  const bool is_used_up = self.is_sequence() && self.sequence().kind == SeqKind::kIterator;
  if (is_last && is_used_up) return run.error("'generator' object is not reversible");
  const Value list = is_used_up ? self : run.items_of(self);
  if (list.items().empty()) return {};
  const Value item = is_last ? list.items().back() : list.items().front();
  if (is_used_up) list.items().erase(list.items().begin());
  return item;
}

Value f_groupby(Run& run, const Value& self, const Args& args) {
  auto items = keyed_items(run, self, Value::none(), true);
  for (Keyed& entry : items) {
    const Value name = attribute_of(run, entry.item, args[0]);
    entry.key = name.is_undefined() && args.has(1) ? args[1] : name;
    Seq* named = run.new_list();
    named->items = {entry.key, entry.item};
    entry = {sort_key(run, entry.key, args.flag(2)), named};
  }
  sorted(run, items, false);
  Seq* groups = run.new_list();
  for (size_t i = 0; i < items.size() && run.spend(1); ++i) {
    const auto& named = items[i].item.items();
    if (i == 0 || !are_equal(items[i].key, items[i - 1].key)) {
      Seq* group = run.new_list(SeqKind::kGroup);
      group->items = {named[0], run.new_list()};
      groups->items.push_back(group);
    }
    groups->items.back().items()[1].items().push_back(named[1]);
  }
  return groups;
}

Value f_items(Run& run, const Value& self, const Args& args) {
  if (!self.is_dict() && !self.is_undefined()) return run.error("items needs a mapping, not '%s'", type_name(self));
  const Value list = self.is_dict() ? m_view<SeqKind::kItems>(run, self, args) : run.new_list();
  list.sequence().kind = SeqKind::kIterator;
  return list;
}

Value f_join(Run& run, const Value& self, const Args& args) {
  const Value list = run.items_of(self), between = args.has(0) ? run.text_of(args[0]) : run.new_text();
  Str* out = run.new_text();
  for (size_t i = 0; i < list.items().size() && !run.failed(); ++i) {
    const Value item = run.text_of(attribute_of(run, list.items()[i], args[1]));
    if (!run.has_room(out->text.size() + item.view().size() + between.view().size())) break;
    if (i > 0) out->append(between.text());
    out->append(item.text());
  }
  return out;
}

Value f_length(Run& run, const Value& self, const Args&) { return Value::integer(run.length_of(self), is_said(self)); }

template <bool is_reverse>
Value f_list(Run& run, const Value& self, const Args&) {
  if (is_reverse && self.is_string()) return run.sliced(self, Value::none(), Value::none(), Value::integer(-1));
  Seq* list = run.new_list(is_reverse ? SeqKind::kIterator : SeqKind::kList);
  list->items = run.items_of(self).items();
  if (is_reverse) std::reverse(list->items.begin(), list->items.end());
  return list;
}

// Calls the filter or test that argument `first` names, with the arguments behind it.
Value call_named(Run& run, Table table, const Value& item, const Args& args, size_t first) {
  Args more(&run.heap);
  if (args.size() <= first || !args[first].is_string()) return run.error("the name of a filter or test is missing");
  more.list.assign(args.list.begin() + static_cast<std::ptrdiff_t>(first) + 1, args.list.end());
  more.named = args.named;
  const string_view name = args[first].view();
  return run.call(table, find_function(functions(table), name), name, item, more);
}

Value f_map(Run& run, const Value& self, const Args& args) {
  Seq* out = run.new_list(SeqKind::kIterator);
  const Value *attribute = args.find("attribute"), *otherwise = args.find("default");
  const Value list = is_true(self) ? run.items_of(self) : run.new_list();
  for (const Value& item : list.items()) {
    if (!run.spend(1)) break;
    const Value found =
        attribute != nullptr ? attribute_of(run, item, *attribute) : call_named(run, Table::kFilters, item, args, 0);
    out->items.push_back(attribute != nullptr && found.is_undefined() && otherwise != nullptr ? *otherwise : found);
  }
  return out;
}

// select, reject, selectattr, rejectattr: those items for which a test holds, or which are true.
template <bool by_attribute, bool wanted>
Value f_choose(Run& run, const Value& self, const Args& args) {
  constexpr size_t kFirst = by_attribute ? 1 : 0;
  Seq* out = run.new_list(SeqKind::kIterator);
  const Value list = is_true(self) ? run.items_of(self) : run.new_list();
  if (args.size() < kFirst) return run.error("an attribute's name is missing");
  for (const Value& item : list.items()) {
    if (!run.spend(1)) break;
    Value value = by_attribute ? attribute_of(run, item, args[0]) : item;
    if (args.size() > kFirst) value = call_named(run, Table::kTests, value, args, kFirst);
    if (is_true(value) == wanted) out->items.push_back(item);
  }
  return out;
}

template <int wanted>
Value f_extreme(Run& run, const Value& self, const Args& args) {
  const auto items = keyed_items(run, self, args[1], args.flag(0));
  const Keyed* best = items.empty() ? nullptr : &items[0];
  for (const Keyed& entry : items) {
    if (order_of(run, entry.key, best->key) == wanted) best = &entry;
  }
  return best != nullptr ? best->item : Value();
}

Value f_sort(Run& run, const Value& self, const Args& args) {
  auto items = keyed_items(run, self, args[2], args.flag(1));
  return sorted(run, items, args.flag(0));
}

Value f_sum(Run& run, const Value& self, const Args& args) {
  const Value list = run.items_of(self);
  Value total = args.has(1) ? args[1] : Value::integer(0);
  for (const Value& item : list.items()) {
    if (run.spend(1)) total = run.binary(Op::kAdd, total, attribute_of(run, item, args[0]));
  }
  return total;
}

Value f_unique(Run& run, const Value& self, const Args& args) {
  Seq* out = run.new_list(SeqKind::kIterator);
  Dict* seen = run.new_dict();
  for (const Keyed& entry : keyed_items(run, self, args[1], args.flag(0))) {
    if (!can_be_key(entry.key)) return run.error("unhashable type: '%s'", type_name(entry.key));
    if (run.spend(1) && seen->find(entry.key) == nullptr) out->items.push_back(entry.item);
    seen->set(entry.key, Value::none());
  }
  return out;
}

template <Case form>
Value f_case(Run& run, const Value& self, const Args&) {
  return with_case(run, run.text_of(self).text(), form);
}

Value f_string(Run& run, const Value& self, const Args&) { return run.text_of(self); }

constexpr Function kFilters[] = {
    {"abs", "", 0, f_abs},
    {"batch", "linecount,fill_with", 1, f_batch},
    {"capitalize", "", 0, f_case<Case::kCapital>},
    {"default,d", "default_value,boolean", 0, f_default},
    {"dictsort", "case_sensitive,by,reverse", 0, f_dictsort},
    {"escape,e", "", 0, f_escape},
    {"first", "", 0, f_end<false>},
    {"float", "default", 0, f_float},
    {"format", nullptr, 0, f_format},
    {"groupby", "attribute,default,case_sensitive", 1, f_groupby},
    {"indent", "width,first,blank", 0, f_indent},
    {"int", "default", 0, f_int},
    {"items", "", 0, f_items},
    {"join", "d,attribute", 0, f_join},
    {"last", "", 0, f_end<true>},
    {"length,count", "", 0, f_length},
    {"list", "", 0, f_list<false>},
    {"lower", "", 0, f_case<Case::kLower>},
    {"map", nullptr, 0, f_map},
    {"max", "case_sensitive,attribute", 0, f_extreme<1>},
    {"min", "case_sensitive,attribute", 0, f_extreme<-1>},
    {"reject", nullptr, 0, f_choose<false, false>},
    {"rejectattr", nullptr, 0, f_choose<true, false>},
    {"replace", "old,new,count", 2, f_replace},
    {"reverse", "", 0, f_list<true>},
    {"round", "precision,method", 0, f_round},
    {"select", nullptr, 0, f_choose<false, true>},
    {"selectattr", nullptr, 0, f_choose<true, true>},
    {"sort", "reverse,case_sensitive,attribute", 0, f_sort},
    {"string,safe", "", 0, f_string},
    {"sum", "attribute,start", 0, f_sum},
    {"title", "", 0, f_case<Case::kTitleWords>},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, f_tojson},
    {"trim", "chars", 0, f_trim},
    {"unique", "case_sensitive,attribute", 0, f_unique},
    {"upper", "", 0, f_case<Case::kUpper>},
};

}  // namespace

std::span<const Function> functions(Table table) {
  if (table == Table::kFilters) return kFilters;
  return table == Table::kTests ? std::span<const Function>(kTests) : kGlobals;
}

std::span<const Function> methods(Type type) {
  if (type == Type::kString) return text_methods();
  if (type == Type::kSequence) return kListMethods;
  if (type == Type::kDict) return kDictMethods;
  return type == Type::kLoop ? std::span<const Function>(kLoopMethods) : std::span<const Function>();
}

uint32_t find_function(std::span<const Function> table, string_view name) {
  for (uint32_t i = 0; i < table.size(); ++i) {
    for (string_view names = table[i].name; !names.empty();) {
      const size_t end = std::min(names.find(','), names.size());
      if (names.substr(0, end) == name) return i;
      names.remove_prefix(std::min(names.size(), end + 1));
    }
  }
  return kNoFunction;
}

}  // namespace weir::jinja
