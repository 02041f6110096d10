// Objects: the properties in the order of the schema, then others.
#include <algorithm>

#include "text/constraint/json_strings.h"
#include "text/constraint/pattern.h"
#include "text/constraint/schema.h"

namespace weir::constraint {

using std::string_view;

namespace {

constexpr uint32_t kMaxCounted = 20000;  // places in an object whose properties are counted

}  // namespace

// All names that the schemas know: those of properties in their order, then what else is required.
Status SchemaCompiler::collect_names(const Facts& f, PodVector<string_view>& names,
                                     PodVector<uint8_t>& required) const {
  const auto add = [&](string_view name, bool is_required) {
    const auto found = static_cast<uint32_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (found == names.size()) {
      names.push_back(name);
      required.push_back(0);
    }
    if (is_required) required[found] = 1;
  };
  for (const Id schema : f.objects) {
    const Id properties = json_.find(schema, "properties");
    if (properties == JsonText::kNone) continue;
    if (json_.kind(properties) != JsonText::kObject) return wrong(properties, "an object of schemas");
    if (json_.size(properties) + names.size() > kMaxProperties)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u properties", at(properties), kMaxProperties);
    for (Id id = json_.first(properties); id != JsonText::kNone; id = json_.next(id)) add(json_.key(id), false);
  }
  for (const Id schema : f.objects) {
    const Id list = json_.find(schema, "required");
    if (list == JsonText::kNone) continue;
    if (json_.kind(list) != JsonText::kArray) return wrong(list, "a list of names");
    if (json_.size(list) > kMaxProperties)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u names", at(list), kMaxProperties);
    for (Id id = json_.first(list); id != JsonText::kNone; id = json_.next(id)) {
      if (json_.kind(id) != JsonText::kString) return wrong(id, "a string");
      add(json_.text(id), true);
    }
  }
  return {};
}

Status SchemaCompiler::name_patterns(const Facts& f, NamePatterns& out) const {
  for (const Id schema : f.objects) {
    const Id patterns = json_.find(schema, "patternProperties");
    if (patterns == JsonText::kNone) continue;
    if (json_.kind(patterns) != JsonText::kObject) return wrong(patterns, "an object of schemas");
    for (Id id = json_.first(patterns); id != JsonText::kNone; id = json_.next(id)) {
      if (out.n == NamePatterns::kMax) {
        return fail(WEIR_ERR_UNSUPPORTED, "%s: patternProperties with more than %u patterns are not supported",
                    at(patterns), NamePatterns::kMax);
      }
      WEIR_TRY(make_pattern(memory_, json_.key(id), at(id), out.names[out.n]));
      out.owners[out.n] = schema;
      out.values[out.n++] = id;
    }
  }
  return {};
}

// What all schemas say about a property, whose name the patterns of `matched` match. An empty name of no property:
// about those that no schema knows.
void SchemaCompiler::property_list(const Facts& f, const NamePatterns& patterns, string_view name, uint32_t matched,
                                   List& out) const {
  for (const Id schema : f.objects) {
    const Id properties = json_.find(schema, "properties");
    Id found = properties == JsonText::kNone || name.data() == nullptr ? JsonText::kNone : json_.find(properties, name);
    bool is_additional = found == JsonText::kNone;
    for (uint32_t i = 0; i < patterns.n; ++i) {
      if (patterns.owners[i] != schema || (matched >> i & 1) == 0) continue;
      is_additional = false;
      out.push_back(patterns.values[i] << kShift);
    }
    if (is_additional) found = json_.find(schema, "additionalProperties");
    if (found != JsonText::kNone) out.push_back(found << kShift);
  }
}

bool SchemaCompiler::list_is_never(const List& list) const {
  return std::any_of(list.begin(), list.end(), [&](Entry e) { return json_.kind(e >> kShift) == JsonText::kFalse; });
}

// Names of `all`, with quotes, that are none of these, however they are spelled.
Status SchemaCompiler::other_names(const PodVector<string_view>& names, const Dfa& all, Dfa& out) {
  if (names.empty()) return out.copy(all), Status();
  Exprs x(memory_);
  PodVector<ExprId> known_names(memory_);
  for (const string_view name : names) known_names.push_back(every_spelling(x, name));
  const ExprId quote = x.text("\"");
  Dfa known(memory_);
  if (make_dfa(x, x.cat(x.cat(quote, x.alt({known_names.data(), known_names.size()})), quote), kMaxDfaStates, known) &&
      intersect(all, known, true, kMaxDfaStates, out))
    return {};
  return fail(WEIR_ERR_UNSUPPORTED, "the names of an object's properties need too many states");
}

// The names of other properties and what they hold: of each kind those that the same patterns match. With patterns
// names have their usual spelling, as the patterns have.
Status SchemaCompiler::add_others(const Facts& f, const PodVector<string_view>& names, const NamePatterns& patterns,
                                  PodVector<uint32_t>& terminals, PodVector<uint32_t>& rules) {
  Dfa usual(memory_), all(memory_);
  if (patterns.n != 0 && !make_length(memory_, 0, kNoLimit, usual)) usual.copy(plain_string());
  bool is_known = false;
  for (uint32_t matched = 0; matched < 1u << patterns.n; ++matched) {
    List list(memory_);
    property_list(f, patterns, {}, matched, list);
    if (list_is_never(list)) continue;
    if (!is_known) WEIR_TRY(other_names(names, patterns.n != 0 ? usual : plain_string(), all));
    is_known = true;
    Dfa some(memory_);
    some.copy(all);
    for (uint32_t i = 0; i < patterns.n; ++i) {
      Dfa both(memory_);
      if (!intersect(some, patterns.names[i], (matched >> i & 1) == 0, kMaxDfaStates, both))
        return fail(WEIR_ERR_UNSUPPORTED, "%s: the pattern needs too many states", at(patterns.values[i]));
      some.take(both);
    }
    if (some.is_empty()) continue;
    terminals.push_back(b_.add_dfa(some));
    rules.push_back(rule_of(list));
  }
  return {};
}

// Places, for each number of properties that were written where that matters: `key` before a name, `behind` a value.
// Keys of properties that may be missing are left out by going to the next one's place.
Status SchemaCompiler::emit_object(const Facts& f, uint32_t from, uint32_t to) {
  PodVector<string_view> names(memory_);
  PodVector<uint8_t> required(memory_);
  WEIR_TRY(collect_names(f, names, required));
  NamePatterns patterns(memory_);
  WEIR_TRY(name_patterns(f, patterns));
  PodVector<uint32_t> others(memory_), other_rules(memory_);  // terminals of names, and what they hold
  WEIR_TRY(add_others(f, names, patterns, others, other_rules));
  const bool has_others = !others.empty();
  const uint32_t n = names.size();
  const auto n_required = static_cast<uint32_t>(std::count(required.begin(), required.end(), 1));
  const uint32_t most = has_others ? kNoLimit : n;
  const bool counts = f.min_properties > n_required || f.max_properties < most;
  const uint32_t max = counts && f.max_properties < most ? f.max_properties : kNoLimit;
  const uint32_t n_counts = !counts ? 1 : (max != kNoLimit ? max : f.min_properties) + 1;
  if (uint64_t{n_counts} * (n + 1) > kMaxCounted && counts)
    return fail(WEIR_ERR_UNSUPPORTED, "%s: too many properties are counted",
                f.objects.empty() ? "#" : at(f.objects[0]));
  const uint32_t open = b_.add_node();
  mark(from, '{', kBehind, open);
  // key[c][i], behind[c][i] with c properties written so far, i the next of the known ones.
  PodVector<uint32_t> key(memory_), behind(memory_);
  for (uint32_t i = 0; i < n_counts * (n + 1); ++i) {
    key.push_back(b_.add_node());
    behind.push_back(b_.add_node());
  }
  const auto place = [&](uint32_t c, uint32_t i) { return c * (n + 1) + i; };
  const auto next_count = [&](uint32_t c) { return c + 1 < n_counts ? c + 1 : c; };
  const auto may_close = [&](uint32_t c, uint32_t i) {
    return (!counts || c >= f.min_properties) && std::find(required.begin() + i, required.end(), 1) == required.end();
  };
  b_.empty(open, key[place(0, 0)]);
  if (may_close(0, 0)) mark(open, '}', kNone, to);
  // Values are the same whatever the count; their ends are not.
  PodVector<char> text(memory_);
  for (uint32_t i = 0; i <= n && !b_.is_full(); ++i) {
    List list(memory_);
    uint32_t rule = 0;
    const bool is_known = i < n;
    bool is_never = false;
    if (is_known) {
      text.clear();
      append_quoted(names[i], text);
      uint32_t matched = 0;
      for (uint32_t k = 0; k < patterns.n; ++k)
        matched |= patterns.names[k].matches({text.data(), text.size()}) ? 1u << k : 0;
      property_list(f, patterns, names[i], matched, list);
      is_never = list_is_never(list);
      if (!is_never) rule = rule_of(list);
    }
    const uint32_t n_kinds = is_known ? 1 : others.size();
    for (uint32_t c = 0; c < n_counts; ++c) {
      const uint32_t here = key[place(c, i)], after = behind[place(c, i)];
      if (may_close(c, i)) mark(after, '}', kBefore, to);
      const bool is_full = max != kNoLimit && c == max;
      if (!is_full) mark(after, ',', kAround, here);
      if (is_known && required[i] == 0) b_.empty(here, key[place(c, i + 1)]);
      if (is_never || is_full) continue;
      for (uint32_t kind = 0; kind < n_kinds; ++kind) {
        const uint32_t colon = b_.add_node(), start = b_.add_node();
        if (is_known) {
          b_.literal(here, {text.data(), text.size()}, colon);
        } else {
          b_.terminal(here, others[kind], colon);
        }
        mark(colon, ':', kAround, start);
        b_.call(start, is_known ? rule : other_rules[kind], behind[place(next_count(c), is_known ? i + 1 : n)]);
      }
    }
  }
  return {};
}

}  // namespace weir::constraint
