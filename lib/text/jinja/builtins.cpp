// Tests, global functions, and the methods of everything but texts.
#include <algorithm>

#include "text/jinja/run.h"
#include "text/jinja/unicode.h"

namespace weir::jinja {
namespace {

using std::string_view;

// ---- tests ----

template <Op op>
Value t_compare(Run& run, const Value& self, const Args& args) {
  return Value::boolean(run.holds(op, self, args[0]));
}

template <Type type>
Value t_is(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is(type));
}

template <bool wanted>
Value t_true(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is(Type::kBool) && (self.integer() != 0) == wanted);
}

template <bool wanted>
Value t_defined(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_undefined() != wanted);
}

Value t_callable(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_undefined() || self.is(Type::kFunction) || self.is(Type::kMethod) ||
                        self.is(Type::kMacro) || self.is(Type::kLoop) || self.is(Type::kJoiner));
}

Value remainder_is(Run& run, const Value& self, const Value& by, int64_t wanted) {
  const Value rest = run.binary(Op::kMod, self, by);
  return run.failed() ? Value() : Value::boolean(are_equal(rest, Value::integer(wanted)));
}
Value t_divisible(Run& run, const Value& self, const Args& args) { return remainder_is(run, self, args[0], 0); }
Value t_even(Run& run, const Value& self, const Args&) { return remainder_is(run, self, Value::integer(2), 0); }
Value t_odd(Run& run, const Value& self, const Args&) { return remainder_is(run, self, Value::integer(2), 1); }

Value t_escaped(Run&, const Value&, const Args&) { return Value::boolean(false); }

Value t_filter(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_string() && find_filter(self.view()) != kNoFunction);
}

Value t_iterable(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_undefined() || self.is_string() || self.is_dict() || self.is_sequence() ||
                        self.is(Type::kLoop));
}

template <Case form>
Value t_case(Run& run, const Value& self, const Args&) {
  const Value text = run.text_of(self), other = with_case(run, text.text(), form);
  const Value swapped = with_case(run, text.text(), form == Case::kUpper ? Case::kLower : Case::kUpper);
  return Value::boolean(text.view() == other.view() && swapped.view() != text.view());
}

Value t_number(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_number() || self.is(Type::kLargeInt));
}

Value t_integer(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is(Type::kInt) || self.is(Type::kLargeInt));
}

Value t_same(Run&, const Value& self, const Args& args) {
  if (self.type() != args[0].type()) return Value::boolean(false);
  return Value::boolean(self.is_object() && !self.is_string() ? self.object() == args[0].object()
                                                              : are_equal(self, args[0]));
}

Value t_sequence(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_undefined() || self.is_string() || self.is_dict() ||
                        (self.is_sequence() && self.sequence().has_items()));
}

Value t_test(Run&, const Value& self, const Args&) {
  return Value::boolean(self.is_string() && find_test(self.view()) != kNoFunction);
}

constexpr Function kTests[] = {
    {"!=", "other", 1, t_compare<Op::kNe>},
    {"<", "other", 1, t_compare<Op::kLt>},
    {"<=", "other", 1, t_compare<Op::kLe>},
    {"==", "other", 1, t_compare<Op::kEq>},
    {">", "other", 1, t_compare<Op::kGt>},
    {">=", "other", 1, t_compare<Op::kGe>},
    {"boolean", "", 0, t_is<Type::kBool>},
    {"callable", "", 0, t_callable},
    {"defined", "", 0, t_defined<true>},
    {"divisibleby", "num", 1, t_divisible},
    {"eq", "other", 1, t_compare<Op::kEq>},
    {"equalto", "other", 1, t_compare<Op::kEq>},
    {"escaped", "", 0, t_escaped},
    {"even", "", 0, t_even},
    {"false", "", 0, t_true<false>},
    {"filter", "", 0, t_filter},
    {"float", "", 0, t_is<Type::kFloat>},
    {"ge", "other", 1, t_compare<Op::kGe>},
    {"greaterthan", "other", 1, t_compare<Op::kGt>},
    {"gt", "other", 1, t_compare<Op::kGt>},
    {"in", "seq", 1, t_compare<Op::kIn>},
    {"integer", "", 0, t_integer},
    {"iterable", "", 0, t_iterable},
    {"le", "other", 1, t_compare<Op::kLe>},
    {"lessthan", "other", 1, t_compare<Op::kLt>},
    {"lower", "", 0, t_case<Case::kLower>},
    {"lt", "other", 1, t_compare<Op::kLt>},
    {"mapping", "", 0, t_is<Type::kDict>},
    {"ne", "other", 1, t_compare<Op::kNe>},
    {"none", "", 0, t_is<Type::kNone>},
    {"number", "", 0, t_number},
    {"odd", "", 0, t_odd},
    {"sameas", "other", 1, t_same},
    {"sequence", "", 0, t_sequence},
    {"string", "", 0, t_is<Type::kString>},
    {"test", "", 0, t_test},
    {"true", "", 0, t_true<true>},
    {"undefined", "", 0, t_defined<false>},
    {"upper", "", 0, t_case<Case::kUpper>},
};

// ---- global functions ----

Value g_range(Run& run, const Value&, const Args& args) {
  int64_t bounds[3] = {0, 0, 1};  // start, stop, step
  for (size_t i = 0; i < args.size(); ++i) {
    if (args.has(i) && !args[i].is_integer()) return run.error("range() takes integers, not '%s'", type_name(args[i]));
  }
  if (args.has(1)) {
    for (size_t i = 0; i < 3 && args.has(i); ++i) bounds[i] = args[i].integer();
  } else {
    bounds[1] = args[0].integer();
  }
  const int64_t step = bounds[2];
  if (step == 0) return run.error("range() needs a step that is not zero");
  Seq* list = run.make_list(SeqKind::kRange);
  const Value kept = list;
  for (int64_t at = bounds[0]; (step > 0 ? at < bounds[1] : at > bounds[1]) && run.spend(1);) {
    if (static_cast<int64_t>(list->items.size()) >= kMaxRange)
      return run.refuse(WEIR_ERR_UNSUPPORTED, "range() makes at most 100000 numbers");
    list->items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return kept;
}

// Arguments of dict() and namespace(): a mapping or pairs, then names.
void fill(Run& run, Dict& to, const Args& args) {
  if (args.size() > 1) return void(run.error("at most one argument without a name is taken"));
  if (args.size() == 1 && args[0].is_dict()) {
    for (const Dict::Entry& entry : args[0].dict().entries) to.set(entry.key, entry.value);
  } else if (args.size() == 1) {
    const Value pairs = run.items_of(args[0]);
    for (size_t i = 0; !run.failed() && i < pairs.sequence().items.size(); ++i) {
      const Value pair = run.items_of(pairs.sequence().items[i]);
      if (run.failed()) return;
      const auto& items = pair.sequence().items;
      if (items.size() != 2 || !can_be_key(items[0])) return void(run.error("a mapping is made of pairs"));
      to.set(items[0], items[1]);
    }
  }
  for (const auto& [name, value] : args.named) to.set(run.make_text(name), value);
}

Value g_dict(Run& run, const Value&, const Args& args) {
  Dict* dict = run.heap.make<Dict>(&run.heap);
  const Value kept = dict;
  fill(run, *dict, args);
  return kept;
}

Value g_namespace(Run& run, const Value&, const Args& args) {
  Dict* dict = run.heap.make<Dict>(&run.heap);
  const Value kept = {Type::kNamespace, dict};
  fill(run, *dict, args);
  return kept;
}

Value g_raise(Run& run, const Value&, const Args& args) {
  return run.refuse(WEIR_ERR_INVALID_ARG, run.text_of(args[0]).view());
}

Value g_strftime_now(Run& run, const Value&, const Args& args) {
  if (!args[0].is_string()) return run.error("strftime_now() takes a text");
  Str* text = run.make_text();
  const Value kept = text;
  std::pmr::string out(&run.heap);
  put_time(out, args[0].view(), run.unix_time);
  text->append(out, is_said(args[0]));
  run.has_room(out.size());
  return kept;
}

Value g_cycler(Run& run, const Value&, const Args& args) {
  if (args.size() == 0 || !args.named.empty()) return run.error("cycler() needs items");
  Cycler* cycler = run.heap.make<Cycler>(&run.heap);
  const Value kept = {Type::kCycler, cycler};
  cycler->items.assign(args.list.begin(), args.list.end());
  return kept;
}

Value g_joiner(Run& run, const Value&, const Args& args) {
  Cycler* joiner = run.heap.make<Cycler>(&run.heap);
  const Value kept = {Type::kJoiner, joiner};
  joiner->items.push_back(args.has(0) ? args[0] : Value(run.make_text(", ")));
  return kept;
}

constexpr Function kGlobals[] = {
    {"cycler", nullptr, 0, g_cycler},
    {"dict", nullptr, 0, g_dict},
    {"joiner", "sep", 0, g_joiner},
    {"namespace", nullptr, 0, g_namespace},
    {"raise_exception", "message", 1, g_raise},
    {"range", "start,stop,step", 1, g_range},
    {"strftime_now", "format", 1, g_strftime_now},
};

// ---- methods; those that would change a list or a dict do not exist in the sandbox ----

Value m_copy(Run& run, const Value& self, const Args&) {
  if (self.is_dict()) {
    Dict* dict = run.heap.make<Dict>(&run.heap);
    const Value kept = dict;
    for (const Dict::Entry& entry : self.dict().entries) dict->set(entry.key, entry.value);
    return kept;
  }
  Seq* list = run.make_list(self.sequence().kind);
  const Value kept = list;
  list->items.assign(self.sequence().items.begin(), self.sequence().items.end());
  run.spend(list->items.size());
  return kept;
}

Value m_get(Run& run, const Value& self, const Args& args) {
  if (!can_be_key(args[0])) return run.error("unhashable type: '%s'", type_name(args[0]));
  const Value* found = self.dict().find(args[0]);
  return found != nullptr ? *found : args.has(1) ? args[1] : Value::none();
}

template <SeqKind kind>
Value m_view(Run& run, const Value& self, const Args&) {
  Seq* list = run.make_list(kind);
  const Value kept = list;
  for (const Dict::Entry& entry : self.dict().entries) {
    if (!run.spend(1)) break;
    if (kind != SeqKind::kItems) {
      list->items.push_back(kind == SeqKind::kKeys ? entry.key : entry.value);
      continue;
    }
    Seq* pair = run.make_list(SeqKind::kTuple);
    list->items.push_back(pair);
    pair->items = {entry.key, entry.value};
  }
  return kept;
}

constexpr Function kDictMethods[] = {
    {"copy", "", 0, m_copy},
    {"get", "key,default", 1, m_get},
    {"items", "", 0, m_view<SeqKind::kItems>},
    {"keys", "", 0, m_view<SeqKind::kKeys>},
    {"values", "", 0, m_view<SeqKind::kValues>},
};

Value m_count(Run& run, const Value& self, const Args& args) {
  const auto& items = self.sequence().items;
  run.spend(items.size());
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return are_equal(item, args[0]); }));
}

Value m_index(Run& run, const Value& self, const Args& args) {
  const auto& items = self.sequence().items;
  run.spend(items.size());
  const auto at = std::find_if(items.begin(), items.end(), [&](const Value& item) { return are_equal(item, args[0]); });
  return at == items.end() ? run.error("the value is not in the list") : Value::integer(at - items.begin());
}

constexpr Function kListMethods[] = {
    {"copy", "", 0, m_copy},
    {"count", "value", 1, m_count},
    {"index", "value", 1, m_index},
};

Value m_next(Run&, const Value& self, const Args&) {
  Cycler& cycler = self.as<Cycler>();
  const Value item = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return item;
}

Value m_reset(Run&, const Value& self, const Args&) {
  self.as<Cycler>().at = 0;
  return Value::none();
}

constexpr Function kCyclerMethods[] = {
    {"next", "", 0, m_next},
    {"reset", "", 0, m_reset},
};

Value m_cycle(Run& run, const Value& self, const Args& args) {
  if (args.size() == 0) return run.error("no items for cycling given");
  return args[self.as<Loop>().index % args.size()];
}

Value m_changed(Run& run, const Value& self, const Args& args) {
  Loop& loop = self.as<Loop>();
  Seq* seen = run.make_list(SeqKind::kTuple);
  const Value now = seen;
  seen->items.assign(args.list.begin(), args.list.end());
  if (loop.has_seen && are_equal(loop.last_seen, now)) return Value::boolean(false);
  loop.has_seen = true;
  loop.last_seen = now;
  return Value::boolean(true);
}

constexpr Function kLoopMethods[] = {
    {"changed", nullptr, 0, m_changed},
    {"cycle", nullptr, 0, m_cycle},
};

}  // namespace

std::span<const Function> test_table() { return kTests; }
std::span<const Function> global_table() { return kGlobals; }

std::span<const Function> method_table(Type type) {
  switch (type) {
    case Type::kString:
      return text_methods();
    case Type::kSequence:
      return kListMethods;
    case Type::kDict:
      return kDictMethods;
    case Type::kCycler:
      return kCyclerMethods;
    case Type::kLoop:
      return kLoopMethods;
    default:
      return {};
  }
}

}  // namespace weir::jinja
