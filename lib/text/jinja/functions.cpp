// The tests, the global functions, the filters of lists and mappings, and the methods of everything but texts.
#include <algorithm>
#include <charconv>

#include "text/jinja/run.h"

namespace weir::jinja {
namespace {

using std::string_view;

// ---- tests ----

// What is asked for already: text, or a copy of what never changes.
Value same(Run&, const Args& args) { return args[0]; }

template <Op op>
Value t_compare(Run& run, const Args& args) {
  return run.binary(op, args[0], args[1]);
}

template <Type... types>
Value t_is(Run&, const Args& args) {
  return Value::boolean((args[0].is(types) || ...));
}

template <bool wanted>
Value t_true(Run&, const Args& args) {
  return Value::boolean(args[0].is(Type::kBool) && is_true(args[0]) == wanted);
}

// Whether the rest of a division by the argument, or by 2, is this.
template <int wanted>
Value t_rest(Run& run, const Args& args) {
  const Value rest = run.binary(Op::kMod, args[0], args.size() > 1 ? args[1] : Value::integer(2));
  return Value::boolean(are_equal(rest, Value::integer(wanted)));
}

Value t_same(Run&, const Args& args) {
  const bool is_object = args[0].object() != nullptr && !args[0].is_string();
  return Value::boolean(args[0].type() == args[1].type() &&
                        (is_object ? args[0].object() == args[1].object() : are_equal(args[0], args[1])));
}

Value t_sequence(Run& run, const Args& args) {
  const bool is_iterator = args[0].is_sequence() && !args[0].sequence().has_items();
  return is_iterator ? Value::boolean(false)
                     : t_is<Type::kUndefined, Type::kString, Type::kDict, Type::kSequence>(run, args);
}

template <Case form>
Value t_case(Run& run, const Args& args) {
  const Value same = with_case(run, args[0].text(), form), other = with_case(run, args[0].text(), Case::kSwapped);
  return Value::boolean(are_equal(same, args[0]) && !are_equal(other, args[0]));
}

template <Table table>
Value t_function(Run&, const Args& args) {
  return Value::boolean(find_function(table, args[0].view()) != nullptr);
}

constexpr Function kTests[] = {
    {"!= ne", "value:a other:a", t_compare<Op::kNe>},
    {"< lt lessthan", "value:a other:a", t_compare<Op::kLt>},
    {"<= le", "value:a other:a", t_compare<Op::kLe>},
    {"== eq equalto", "value:a other:a", t_compare<Op::kEq>},
    {"> gt greaterthan", "value:a other:a", t_compare<Op::kGt>},
    {">= ge", "value:a other:a", t_compare<Op::kGe>},
    {"boolean", "value:a", t_is<Type::kBool>},
    {"callable", "value:a", t_is<Type::kUndefined, Type::kFunction, Type::kMacro, Type::kLoop>},
    {"defined", "value:a", [](Run&, const Args& args) { return Value::boolean(args.has(0)); }},
    {"divisibleby", "value:a num:a", t_rest<0>},
    {"even", "value:a", t_rest<0>},
    {"false", "value:a", t_true<false>},
    {"filter", "value:s", t_function<Table::kFilters>},
    {"float", "value:a", t_is<Type::kFloat>},
    {"in", "value:a seq:a", t_compare<Op::kIn>},
    {"integer", "value:a", t_is<Type::kInt, Type::kLargeInt>},
    {"iterable", "value:a", t_is<Type::kUndefined, Type::kString, Type::kDict, Type::kSequence, Type::kLoop>},
    {"lower", "value:t", t_case<Case::kLower>},
    {"mapping", "value:a", t_is<Type::kDict>},
    {"none", "value:a", t_is<Type::kNone>},
    {"number", "value:a", t_is<Type::kBool, Type::kInt, Type::kFloat, Type::kLargeInt>},
    {"odd", "value:a", t_rest<1>},
    {"sameas", "value:a other:a", t_same},
    {"sequence", "value:a", t_sequence},
    {"string", "value:a", t_is<Type::kString>},
    {"test", "value:s", t_function<Table::kTests>},
    {"true", "value:a", t_true<true>},
    {"undefined", "value:a", t_is<Type::kUndefined>},
    {"upper", "value:t", t_case<Case::kUpper>},
};

// ---- global functions ----

Value g_range(Run& run, const Args& args) {
  const int64_t first = args[0].integer(), step = args.number(2, 1);
  const int64_t start = args.has(1) ? first : 0, stop = args.number(1, first);
  if (step == 0) return run.error("range() needs a step that is not zero");
  Seq* list = run.new_list({}, SeqKind::kRange);
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
Value g_mapping(Run& run, const Args& args) {
  if (args.size() > 1 || (args.size() == 1 && !args[0].is_dict())) return run.error("a mapping was expected");
  return {type, run.dict_of(args, args.size() == 1 ? args[0] : Value())};
}

constexpr Function kGlobals[] = {
    {"dict", "*", g_mapping<Type::kDict>},
    {"namespace", "*", g_mapping<Type::kNamespace>},
    {"raise_exception", "message:t",
     [](Run& run, const Args& args) { return run.refuse(WEIR_ERR_INVALID_ARG, args[0].view()); }},
    {"range", "start:i stop:i? step:i?", g_range},
    {"strftime_now", "format:s", g_strftime_now},
};

// ---- methods; those that would change a list or a dict do not exist in the sandbox ----

Value m_get(Run& run, const Args& args) {
  if (!can_be_key(args[1])) return run.error("unhashable type: '%s'", type_name(args[1]));
  const Value* found = args[0].dict().find(args[1]);
  return found != nullptr ? *found : args.size() > 2 ? args[2] : Value::none();
}

template <SeqKind kind>
Value m_view(Run& run, const Args& args) {
  Seq* list = run.new_list({}, kind);
  for (const auto& [key, value] : args[0].dict().entries) {
    if (!run.spend(1)) break;
    if (kind == SeqKind::kKeys) list->items.push_back(key);
    if (kind == SeqKind::kValues) list->items.push_back(value);
    if (kind == SeqKind::kItems) list->items.push_back(run.new_list({key, value}, SeqKind::kTuple));
  }
  return list;
}

// count and index.
template <bool is_count>
Value m_search(Run& run, const Args& args) {
  const auto& items = args[0].items();
  const auto is_it = [&](const Value& item) { return run.spend(1) && are_equal(item, args[1]); };
  if (is_count) return Value::integer(std::count_if(items.begin(), items.end(), is_it));
  const auto at = std::find_if(items.begin(), items.end(), is_it);
  return at == items.end() ? run.error("the value is not in the list") : Value::integer(at - items.begin());
}

Value m_changed(Run& run, const Args& args) {
  Value now = run.new_list(), &before = args[0].as<Loop>().changed;
  now.items().assign(args.list.begin() + 1, args.list.end());
  const bool is_new = !are_equal(now, before);
  before = now;
  return Value::boolean(is_new);
}

Value m_cycle(Run& run, const Args& args) {
  if (args.size() == 1) return run.error("no items for cycling given");
  return args[1 + args[0].as<Loop>().index % (args.size() - 1)];
}

constexpr Function kDictMethods[] = {
    {"copy", "self:d", same},
    {"get", "self:d key:a *", m_get},
    {"items", "self:d", m_view<SeqKind::kItems>},
    {"keys", "self:d", m_view<SeqKind::kKeys>},
    {"values", "self:d", m_view<SeqKind::kValues>},
};
constexpr Function kListMethods[] = {{"copy", "self:l", same},
                                     {"count", "self:l value:a", m_search<true>},
                                     {"index", "self:l value:a", m_search<false>}};
constexpr Function kLoopMethods[] = {{"changed", "self:a *", m_changed}, {"cycle", "self:a *", m_cycle}};

// ---- what several filters do with items ----

// The attribute that the path names, such as "function.name" or 0, or `otherwise` where there is none; the item itself
// without a path.
Value attribute_of(Run& run, Value item, const Value& path, const Value& otherwise = {}) {
  if (path.is_undefined() || path.is_none()) return item;
  string_view rest = path.is_string() ? path.view() : "-";
  for (bool goes_on = true; goes_on && run.spend(1);) {
    const size_t end = std::min(rest.find('.'), rest.size());
    int64_t index = 0;
    const bool is_index = end > 0 && std::from_chars(rest.data(), rest.data() + end, index).ptr == rest.data() + end;
    const Value name = run.new_text(rest.substr(0, end));
    item = run.item(item, !path.is_string() ? path : is_index ? Value::integer(index) : name, nullptr);
    if (item.is_undefined() && !otherwise.is_undefined() && !otherwise.is_none()) item = otherwise;
    goes_on = end < rest.size();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return item;
}

struct Keyed {
  Value key, item;
};
using KeyedItems = std::pmr::vector<Keyed>;

// What items are compared by: texts in lower case unless `case_counts`.
Value sort_key(Run& run, const Value& key, bool case_counts) {
  return key.is_string() && !case_counts ? with_case(run, key.text(), Case::kLower) : key;
}

KeyedItems keyed_items(Run& run, const Value& list, const Value& path, bool case_counts, const Value& otherwise = {}) {
  KeyedItems items(&run.heap);
  for (const Value& item : list.items()) {
    if (!run.spend(1)) break;
    items.push_back({sort_key(run, attribute_of(run, item, path, otherwise), case_counts), item});
  }
  return items;
}

bool is_before(Run& run, const Value& a, const Value& b) {
  const int order = compare(a, b);
  if (!run.spend(1)) return false;  // the limit may have cut the comparison short
  if (a.is_undefined() || b.is_undefined()) run.undefined_error(a.is_undefined() ? a : b);
  if (order == 2) run.error("values of different types cannot be ordered");
  return order == -1;
}

// By their keys, stable.
Value sorted(Run& run, KeyedItems& items, bool is_reverse) {
  Seq* list = run.new_list();
  if (!run.spend(items.size() * 20)) return list;
  merge_sort(items, [&](const Keyed& a, const Keyed& b) {
    return is_reverse ? is_before(run, b.key, a.key) : is_before(run, a.key, b.key);
  });
  for (const Keyed& entry : items) list->items.push_back(entry.item);
  return list;
}

// ---- filters ----

Value f_attr(Run& run, const Args& args) {
  return args[0].is_dict() ? Value() : run.attribute(args[0], args[1].view(), nullptr);
}

// batch, lists of a length, and slice, so many lists; the last ones may be filled up with a value.
template <bool of_length>
Value f_cut(Run& run, const Args& args) {
  const auto& items = args[0].items();
  const size_t n = static_cast<size_t>(args[1].integer()), size = items.size();
  if (args[1].integer() < 1 || args[1].integer() > kMaxRange)
    return run.error("batch and slice need a positive number");
  const size_t n_lists = of_length ? (size + n - 1) / n : n, n_longer = of_length ? 0 : size % n;
  Seq* lists = run.new_list({}, SeqKind::kIterator);
  for (size_t i = 0, at = 0; i < n_lists && run.spend(1); ++i) {
    const size_t full = of_length ? n : size / n + (n_longer > 0 ? 1 : 0);
    const size_t end = std::min(size, at + (of_length || i < n_longer ? full : size / n));
    Seq* list = run.new_list();
    for (; at < end; ++at) list->items.push_back(items[at]);
    const bool is_filled = args.has(2) && !args[2].is_none();
    if (is_filled && !of_length && i >= n_longer) list->items.push_back(args[2]);
    while (is_filled && of_length && list->items.size() < n) list->items.push_back(args[2]);
    lists->items.push_back(list);
  }
  return lists;
}

Value f_default(Run& run, const Args& args) {
  if (args.has(0) && (is_true(args[0]) || !args.flag(2))) return args[0];
  return args.has(1) ? args[1] : run.new_text();
}

Value f_dictsort(Run& run, const Args& args) {
  const string_view by = args.has(2) ? args[2].view() : "key";
  if (by != "key" && by != "value") return run.error("dictsort sorts by 'key' or 'value'");
  const Value pairs = m_view<SeqKind::kItems>(run, args);
  KeyedItems items = keyed_items(run, pairs, Value::integer(by == "key" ? 0 : 1), args.flag(1));
  return sorted(run, items, args.flag(3));
}

template <bool is_last>
Value f_end(Run& run, const Args& args) {
  const bool is_used_up = args[0].is_sequence() && args[0].sequence().kind == SeqKind::kIterator;
  if (is_last && is_used_up) return run.error("'generator' object is not reversible");
  const Value list = is_used_up ? args[0] : run.items_of(args[0]);
  if (list.items().empty() || !run.spend(list.items().size() / kStepItems)) return {};
  const Value item = is_last ? list.items().back() : list.items().front();
  if (is_used_up) list.items().erase(list.items().begin());
  return item;
}

Value f_groupby(Run& run, const Args& args) {
  KeyedItems items = keyed_items(run, args[0], args[1], args.flag(3), args[2]);
  sorted(run, items, false);
  Seq* groups = run.new_list();
  for (size_t i = 0; i < items.size() && run.spend(1); ++i) {
    const auto& [key, item] = items[i];
    if (i == 0 || !are_equal(key, items[i - 1].key)) {
      const Value grouper = attribute_of(run, item, args[1], args[2]);
      groups->items.push_back(run.new_list({grouper, run.new_list()}, SeqKind::kGroup));
    }
    groups->items.back().items()[1].items().push_back(item);
  }
  return groups;
}

Value f_items(Run& run, const Args& args) {
  if (!args[0].is_dict() && args.has(0)) return run.error("items needs a mapping, not '%s'", type_name(args[0]));
  const Value list = args.has(0) ? m_view<SeqKind::kItems>(run, args) : run.new_list();
  list.sequence().kind = SeqKind::kIterator;
  return list;
}

Value f_join(Run& run, const Args& args) {
  Str* out = run.new_text();
  for (const Value& item : args[0].items()) {
    if (&item != &args[0].items().front() && args.has(1)) run.add(*out, args[1].text());
    if (!run.add(*out, *run.text_of(attribute_of(run, item, args[2])))) break;
  }
  return out;
}

template <bool is_reverse>
Value f_list(Run& run, const Args& args) {
  const Value none = Value::none();
  if (is_reverse && args[0].is_string()) return run.sliced(args[0], none, none, Value::integer(-1));
  Seq* list = run.new_list({}, is_reverse ? SeqKind::kIterator : SeqKind::kList);
  list->items = run.items_of(args[0]).items();
  if (is_reverse) std::reverse(list->items.begin(), list->items.end());
  return list;
}

// Calls the filter or test that argument `first` names, with the arguments behind it.
Value call_named(Run& run, Table table, const Value& item, const Args& args, size_t first) {
  Args more(&run.heap);
  if (args.size() <= first || !args[first].is_string()) return run.error("the name of a filter or test is missing");
  more.list.assign(args.list.begin() + static_cast<std::ptrdiff_t>(first), args.list.end());
  more.list[0] = item;
  more.named = args.named;
  return run.call(table, args[first].view(), find_function(table, args[first].view()), more);
}

Value f_map(Run& run, const Args& args) {
  Seq* out = run.new_list({}, SeqKind::kIterator);
  Args left(args, &run.heap);
  const std::optional<Value> path = left.take("attribute"), otherwise = left.take("default");
  for (const Value& item : args[0].items()) {
    if (!run.spend(1)) break;
    out->items.push_back(path.has_value() ? attribute_of(run, item, *path, otherwise.value_or(Value()))
                                          : call_named(run, Table::kFilters, item, args, 1));
  }
  return out;
}

// select, reject, selectattr, rejectattr: those items for which a test holds, or which are true.
template <bool by_attribute, bool wanted>
Value f_choose(Run& run, const Args& args) {
  constexpr size_t kTest = by_attribute ? 2 : 1;
  Seq* out = run.new_list({}, SeqKind::kIterator);
  if (args.size() < kTest) return run.error("an attribute's name is missing");
  for (const Value& item : args[0].items()) {
    if (!run.spend(1)) break;
    Value value = by_attribute ? attribute_of(run, item, args[1]) : item;
    if (args.size() > kTest) value = call_named(run, Table::kTests, value, args, kTest);
    if (is_true(value) == wanted) out->items.push_back(item);
  }
  return out;
}

template <bool is_greatest>
Value f_extreme(Run& run, const Args& args) {
  const KeyedItems items = keyed_items(run, args[0], args[2], args.flag(1));
  const Keyed* best = items.empty() ? nullptr : &items[0];
  for (size_t i = 1; i < items.size() && run.spend(1); ++i) {
    const Value &key = items[i].key, &most = best->key;
    if (is_greatest ? is_before(run, most, key) : is_before(run, key, most)) best = &items[i];
  }
  return best != nullptr ? best->item : Value();
}

// By one attribute, or by several with commas between them.
Value f_sort(Run& run, const Args& args) {
  KeyedItems items = keyed_items(run, args[0], Value(), true);
  for (auto& [key, item] : items) {
    Value keys = run.new_list();
    string_view rest = args[3].is_string() ? args[3].view() : "";
    do {
      const size_t end = std::min(rest.find(','), rest.size());
      const Value path = args[3].is_string() ? Value(run.new_text(rest.substr(0, end))) : args[3];
      keys.items().push_back(sort_key(run, attribute_of(run, item, path), args.flag(2)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    } while (!rest.empty() && !run.failed());
    key = keys;
  }
  return sorted(run, items, args.flag(1));
}

Value f_sum(Run& run, const Args& args) {
  Value total = args.has(2) ? args[2] : Value::integer(0);
  for (const Value& item : args[0].items()) {
    if (run.spend(1)) total = run.binary(Op::kAdd, total, attribute_of(run, item, args[1]));
  }
  return total;
}

Value f_unique(Run& run, const Args& args) {
  Seq* out = run.new_list({}, SeqKind::kIterator);
  Dict* seen = run.new_dict();
  for (const auto& [key, item] : keyed_items(run, args[0], args[2], args.flag(1))) {
    if (!can_be_key(key)) return run.error("unhashable type: '%s'", type_name(key));
    if (seen->find(key) == nullptr) out->items.push_back(item);
    if (!run.spend(1)) break;
    seen->set(key, Value::none());
  }
  return out;
}

constexpr Function kFilters[] = {
    {"attr", "value:a name:s", f_attr},
    {"batch", "value:l linecount:i fill_with:a?", f_cut<true>},
    {"default d", "value:a default_value:a? boolean:a?", f_default},
    {"dictsort", "value:d case_sensitive:a? by:s? reverse:a?", f_dictsort},
    {"first", "value:a", f_end<false>},
    {"groupby", "value:l attribute:a default:a? case_sensitive:a?", f_groupby},
    {"items", "value:a", f_items},
    {"join", "value:l d:t? attribute:a?", f_join},
    {"last", "value:a", f_end<true>},
    {"length count", "value:a",
     [](Run& run, const Args& args) { return Value::integer(run.length_of(args[0]), is_said(args[0])); }},
    {"list", "value:a", f_list<false>},
    {"map", "value:o *", f_map},
    {"max", "value:l case_sensitive:a? attribute:a?", f_extreme<true>},
    {"min", "value:l case_sensitive:a? attribute:a?", f_extreme<false>},
    {"reject", "value:o *", f_choose<false, false>},
    {"rejectattr", "value:o *", f_choose<true, false>},
    {"reverse", "value:a", f_list<true>},
    {"select", "value:o *", f_choose<false, true>},
    {"selectattr", "value:o *", f_choose<true, true>},
    {"slice", "value:l slices:i fill_with:a?", f_cut<false>},
    {"sort", "value:l reverse:a? case_sensitive:a? attribute:a?", f_sort},
    {"string safe", "value:t", same},
    {"sum", "value:l attribute:a? start:a?", f_sum},
    {"tojson", "value:a ensure_ascii:a? indent:a? separators:l? sort_keys:a?", f_tojson},
    {"unique", "value:l case_sensitive:a? attribute:a?", f_unique},
};

}  // namespace

std::span<const Function> functions(Table table) {
  const std::span<const Function> tables[] = {kFilters,     text_functions(false), kTests,
                                              kGlobals,     text_functions(true),  kListMethods,
                                              kDictMethods, kLoopMethods};
  return tables[static_cast<size_t>(table)];
}

string_view take_word(string_view& words) {
  const size_t end = std::min(words.find(' '), words.size());
  const string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

const Function* find_function(Table table, string_view name) {
  for (const Function& function : functions(table)) {
    for (string_view names = function.name; !names.empty();) {
      if (take_word(names) == name) return &function;
    }
  }
  return table == Table::kFilters ? find_function(Table::kTextFilters, name) : nullptr;
}

}  // namespace weir::jinja
