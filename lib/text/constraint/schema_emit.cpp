// Values of each type as pieces of a grammar.
#include <algorithm>

#include "text/constraint/json_strings.h"
#include "text/constraint/schema.h"

namespace weir::constraint {

using std::string_view;

namespace {

constexpr uint32_t kMaxSpaces = 64;  // around a mark on one side; for a line end and an indentation
constexpr uint32_t kFewTexts = 4;    // choices by themselves; more become one automaton

}  // namespace

const Dfa& SchemaCompiler::plain_string() {
  if (!string_.is_empty()) return string_;
  Exprs x(memory_);
  const ExprId quote = x.text("\"");
  make_dfa(x, x.cat(x.cat(quote, x.repeat(any_character(x), 0, kNoLimit)), quote), kMaxDfaStates, string_);
  return string_;
}

const Dfa& SchemaCompiler::character() {
  if (!character_.is_empty()) return character_;
  Exprs x(memory_);
  make_dfa(x, any_character(x), kMaxDfaStates, character_);
  return character_;
}

// White space is counted, as a model that has nothing to say may write it without end. The automaton is made by hand:
// states for so many bytes before the mark, then for so many behind it.
void SchemaCompiler::mark(uint32_t from, char mark, Spaces spaces, uint32_t to) {
  uint32_t& known = marks_[static_cast<size_t>(mark) * 4 + spaces];
  if (known != UINT32_MAX) return b_.terminal(from, known, to);
  if (spaces == kNone) {
    known = b_.add_literal({&mark, 1});
    return b_.terminal(from, known, to);
  }
  Dfa dfa(memory_);
  dfa.n_classes = 3;
  for (const char c : {' ', '\t', '\n', '\r'}) dfa.classes[static_cast<uint8_t>(c)] = 1;
  dfa.classes[static_cast<uint8_t>(mark)] = 2;
  const uint32_t n_before = (spaces & kBefore) != 0 ? kMaxSpaces : 0,
                 n_behind = (spaces & kBehind) != 0 ? kMaxSpaces : 0;
  const uint32_t behind = Dfa::kStart + n_before + 1, n = behind + n_behind + 1;
  for (uint32_t i = 0; i < n; ++i) {
    const bool is_before = i >= Dfa::kStart && i < behind;
    const bool can_space = is_before ? i + 1 < behind : i >= behind && i + 1 < n;
    dfa.next.push_back(0);
    dfa.next.push_back(static_cast<uint16_t>(can_space ? i + 1 : 0));
    dfa.next.push_back(static_cast<uint16_t>(is_before ? behind : 0));
    dfa.flags.push_back(
        static_cast<uint8_t>((i >= behind ? Dfa::kAccepts : 0) | (is_before || can_space ? Dfa::kGoesOn : 0)));
  }
  known = b_.add_dfa(dfa);
  b_.terminal(from, known, to);
}

Status SchemaCompiler::emit(const Facts& f, uint32_t from, uint32_t to) {
  if (f.choices != JsonText::kNone) return emit_choices(f, from, to);
  if ((f.types & kNull) != 0) b_.literal(from, "null", to);
  if ((f.types & kBool) != 0) {
    b_.literal(from, "true", to);
    b_.literal(from, "false", to);
  }
  if ((f.types & (kInteger | kFraction)) != 0 && !f.range.is_empty())
    WEIR_TRY(emit_numbers(f, (f.types & kFraction) == 0, from, to));
  if ((f.types & kString) != 0 && f.min_length <= f.max_length) WEIR_TRY(emit_string(f, from, to));
  if ((f.types & kArray) != 0 && f.min_items <= f.max_items) WEIR_TRY(emit_array(f, from, to));
  if ((f.types & kObject) != 0 && f.min_properties <= f.max_properties) WEIR_TRY(emit_object(f, from, to));
  return {};
}

Status SchemaCompiler::emit_choices(const Facts& f, uint32_t from, uint32_t to) {
  PodVector<Id> texts(memory_);
  Facts rest(memory_);  // what stands beside the choices
  rest.types = f.types;
  rest.range = f.range;
  rest.min_length = f.min_length;
  rest.max_length = f.max_length;
  rest.min_items = f.min_items;
  rest.max_items = f.max_items;
  rest.min_properties = f.min_properties;
  rest.max_properties = f.max_properties;
  rest.multiples.append(f.multiples.data(), f.multiples.size());
  rest.patterns.append(f.patterns.data(), f.patterns.size());
  rest.arrays.append(f.arrays.data(), f.arrays.size());
  rest.objects.append(f.objects.data(), f.objects.size());
  const bool is_plain = f.patterns.empty() && f.min_length == 0 && f.max_length == kNoLimit;
  for (Id id = f.is_const ? f.choices : json_.first(f.choices); id != JsonText::kNone;
       id = f.is_const ? JsonText::kNone : json_.next(id)) {
    bool allowed = is_plain && json_.kind(id) == JsonText::kString && (f.types & kString) != 0;
    if (!allowed) WEIR_TRY(is_allowed(rest, id, allowed));
    if (!allowed) continue;
    if (json_.kind(id) == JsonText::kString) {
      texts.push_back(id);
    } else {
      WEIR_TRY(emit_constant(id, from, to));
    }
  }
  if (texts.size() <= kFewTexts) {
    for (const Id id : texts) WEIR_TRY(emit_constant(id, from, to));
    return {};
  }
  Exprs x(memory_);
  PodVector<ExprId> all(memory_);
  PodVector<char> quoted(memory_);
  for (const Id id : texts) {
    quoted.clear();
    append_quoted(json_.text(id), quoted);
    all.push_back(x.text({quoted.data(), quoted.size()}));
  }
  Dfa dfa(memory_);
  if (!make_dfa(x, x.alt({all.data(), all.size()}), kMaxDfaStates, dfa))
    return fail(WEIR_ERR_UNSUPPORTED, "%s: it needs too many states", at(f.choices));
  b_.dfa(from, dfa, to);
  return {};
}

// One value: texts and numbers as they are usually written, white space between the marks of arrays and objects.
Status SchemaCompiler::emit_constant(Id id, uint32_t from, uint32_t to) {
  PodVector<char> text(memory_);
  switch (json_.kind(id)) {
    case JsonText::kNull:
      return b_.literal(from, "null", to), Status();
    case JsonText::kFalse:
      return b_.literal(from, "false", to), Status();
    case JsonText::kTrue:
      return b_.literal(from, "true", to), Status();
    case JsonText::kString:
      append_quoted(json_.text(id), text);
      return b_.literal(from, {text.data(), text.size()}, to), Status();
    case JsonText::kNumber: {
      b_.literal(from, json_.text(id), to);
      Decimal d;
      WEIR_TRY(read_decimal(id, d));
      if (!d.is_integer() || d.exponent > 20) return {};
      if (d.negative) text.push_back('-');  // 1.0 is 1, too
      for (int32_t i = 0; i < d.exponent; ++i) text.push_back(i < static_cast<int32_t>(d.n_digits) ? d.digits[i] : '0');
      if (d.n_digits == 0) text.push_back('0');
      if (string_view(text.data(), text.size()) != json_.text(id)) b_.literal(from, {text.data(), text.size()}, to);
      return {};
    }
    default:
      break;
  }
  const bool is_object = json_.kind(id) == JsonText::kObject;
  uint32_t node = b_.add_node();
  mark(from, is_object ? '{' : '[', kBehind, node);
  for (Id member = json_.first(id); member != JsonText::kNone; member = json_.next(member)) {
    if (b_.is_full()) return {};
    if (member != json_.first(id)) {
      const uint32_t next = b_.add_node();
      mark(node, ',', kAround, next);
      node = next;
    }
    if (is_object) {
      const uint32_t colon = b_.add_node(), next = b_.add_node();
      text.clear();
      append_quoted(json_.key(member), text);
      b_.literal(node, {text.data(), text.size()}, colon);
      mark(colon, ':', kAround, next);
      node = next;
    }
    const uint32_t next = b_.add_node();
    WEIR_TRY(emit_constant(member, node, next));
    node = next;
  }
  mark(node, is_object ? '}' : ']', json_.size(id) == 0 ? kNone : kBefore, to);
  return {};
}

Status SchemaCompiler::emit_numbers(const Facts& f, bool integers, uint32_t from, uint32_t to) {
  const bool is_free = !f.range.has_min && !f.range.has_max && f.multiples.empty();
  Dfa& kept = integers ? integer_ : number_;
  if (is_free && !kept.is_empty()) return b_.dfa(from, kept, to), Status();
  Dfa dfa(memory_);
  if (!make_numbers(memory_, f.range, integers, dfa))
    return fail(WEIR_ERR_UNSUPPORTED, "a range of numbers needs too many states");
  for (const Id id : f.multiples) {
    NumberStep step;
    WEIR_TRY(read_step(id, step));
    Dfa multiples(memory_), both(memory_);
    if (!make_multiples(step, integers, multiples) || !intersect(dfa, multiples, false, kMaxDfaStates, both))
      return fail(WEIR_ERR_UNSUPPORTED, "%s: multipleOf needs too many states", at(id));
    dfa.take(both);
  }
  if (dfa.is_empty()) return {};
  b_.dfa(from, dfa, to);
  if (is_free) kept.take(dfa);
  return {};
}

Status SchemaCompiler::emit_string(const Facts& f, uint32_t from, uint32_t to) {
  if (!f.patterns.empty()) {
    const bool is_alone = f.patterns.size() == 1 && f.min_length == 0 && f.max_length == kNoLimit;
    if (is_alone) {
      PodVector<uint32_t> key(memory_);
      key.push_back(json_.key(f.patterns[0]) == "format" ? 1 : 0);
      for (const char c : json_.text(f.patterns[0])) key.push_back(static_cast<uint8_t>(c));
      const uint32_t known = patterns_.find_or_add(key.data(), key.size());
      if (known < pattern_strings_.size()) {
        if (pattern_strings_[known] != UINT32_MAX) b_.terminal(from, pattern_strings_[known], to);
        return {};
      }
    }
    Dfa dfa(memory_);
    WEIR_TRY(string_automaton(f, dfa));
    const uint32_t made = dfa.is_empty() ? UINT32_MAX : b_.add_dfa(dfa);
    if (made != UINT32_MAX) b_.terminal(from, made, to);
    if (is_alone) pattern_strings_.push_back(made);
    return {};
  }
  if (f.min_length == 0 && f.max_length == kNoLimit) return b_.dfa(from, plain_string(), to), Status();
  const uint32_t inside = b_.add_node();
  b_.literal(from, "\"", inside);
  b_.counted(inside, character(), f.min_length, f.max_length, '"', to);
  return {};
}

Status SchemaCompiler::emit_array(const Facts& f, uint32_t from, uint32_t to) {
  uint32_t n_prefix = 0;
  for (const Id schema : f.arrays) {
    const Id items = json_.find(schema, "items"), prefix = json_.find(schema, "prefixItems");
    if (items != JsonText::kNone && json_.kind(items) == JsonText::kArray)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: a list is not supported here; prefixItems is", at(items));
    if (prefix == JsonText::kNone) continue;
    if (json_.kind(prefix) != JsonText::kArray) return wrong(prefix, "a list of schemas");
    n_prefix = std::max(n_prefix, json_.size(prefix));
  }
  // What all schemas say about item i: where prefixItems ends, items begins.
  const auto item = [&](uint32_t i, uint32_t start, uint32_t end) {
    List list(memory_);
    for (const Id schema : f.arrays) {
      const Id prefix = json_.find(schema, "prefixItems");
      Id found = json_.find(schema, "items");
      if (prefix != JsonText::kNone && i < json_.size(prefix)) {
        found = json_.first(prefix);
        for (uint32_t k = 0; k < i; ++k) found = json_.next(found);
      }
      if (found != JsonText::kNone) list.push_back(found << kShift);
    }
    b_.call(start, rule_of(list), end);
  };
  const uint32_t open = b_.add_node();
  mark(from, '[', kBehind, open);
  if (f.min_items == 0) mark(open, ']', kNone, to);
  const bool is_free = f.max_items == kNoLimit;
  const uint32_t n = is_free ? std::max(f.min_items, n_prefix + 1) : f.max_items;
  uint32_t start = open;  // of item i
  for (uint32_t i = 0; i < n && !b_.is_full(); ++i) {
    const uint32_t end = b_.add_node();
    item(i, start, end);
    if (i + 1 >= f.min_items) mark(end, ']', kBefore, to);
    const bool is_last = i + 1 == n;
    if (is_last && !is_free) break;
    // Without a limit the last item repeats: from where the comma before it ended. The first one is behind none.
    const uint32_t next = is_last && i != 0 ? start : b_.add_node();
    mark(end, ',', kAround, next);
    if (is_last && i == 0) {
      const uint32_t again = b_.add_node();
      item(1, next, again);
      mark(again, ']', kBefore, to);
      mark(again, ',', kAround, next);
    }
    start = next;
  }
  return {};
}

}  // namespace weir::constraint
