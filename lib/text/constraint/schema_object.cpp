// Objects: the properties in the order of the schema, then others.
#include <algorithm>

#include "text/constraint/json_strings.h"
#include "text/constraint/schema.h"

namespace weir::constraint {

using std::string_view;

namespace {

constexpr uint32_t kMostCounted = 20000;  // places in an object whose properties are counted

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
    if (json_.kind(properties) != JsonText::kObject)
      return fail(WEIR_ERR_INVALID_ARG, "%s: it is no object of schemas", at(properties));
    if (json_.size(properties) + names.size() > kMostProperties)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u properties", at(properties), kMostProperties);
    for (Id id = json_.first(properties); id != JsonText::kNone; id = json_.next(id)) add(json_.key(id), false);
  }
  for (const Id schema : f.objects) {
    const Id list = json_.find(schema, "required");
    if (list == JsonText::kNone) continue;
    if (json_.kind(list) != JsonText::kArray) return fail(WEIR_ERR_INVALID_ARG, "%s: it is no list of names", at(list));
    if (json_.size(list) > kMostProperties)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u names", at(list), kMostProperties);
    for (Id id = json_.first(list); id != JsonText::kNone; id = json_.next(id)) {
      if (json_.kind(id) != JsonText::kString) return fail(WEIR_ERR_INVALID_ARG, "%s: it is no name", at(id));
      add(json_.text(id), true);
    }
  }
  return {};
}

// What all schemas say about a property. An empty name of no property: about those that no schema knows.
Status SchemaCompiler::property_list(const Facts& f, string_view name, List& out) const {
  for (const Id schema : f.objects) {
    const Id properties = json_.find(schema, "properties");
    Id found = properties == JsonText::kNone || name.data() == nullptr ? JsonText::kNone : json_.find(properties, name);
    if (found == JsonText::kNone) found = json_.find(schema, "additionalProperties");
    if (found != JsonText::kNone) out.push_back(found << kShift);
  }
  return {};
}

bool SchemaCompiler::list_is_never(const List& list) const {
  return std::any_of(list.begin(), list.end(), [&](Entry e) { return json_.kind(e >> kShift) == JsonText::kFalse; });
}

// Names, with quotes, that are none of these, however they are spelled.
Status SchemaCompiler::other_names(const PodVector<string_view>& names, Dfa& out) {
  Exprs x(memory_);
  PodVector<ExprId> all(memory_);
  for (const string_view name : names) all.push_back(every_spelling(x, name));
  const ExprId quote = x.text("\"");
  Dfa known(memory_);
  if (make_dfa(x, x.cat(x.cat(quote, x.alt({all.data(), all.size()})), quote), kMostDfaStates, known) &&
      intersect(plain_string(), known, true, kMostDfaStates, out))
    return {};
  return fail(WEIR_ERR_UNSUPPORTED, "the names of an object's properties need too many states");
}

// Places, for each number of properties that were written where that matters: `key` before a name, `behind` a value.
// Keys of properties that may be missing are left out by going to the next one's place.
Status SchemaCompiler::emit_object(const Facts& f, uint32_t from, uint32_t to) {
  PodVector<string_view> names(memory_);
  PodVector<uint8_t> required(memory_);
  WEIR_TRY(collect_names(f, names, required));
  List others(memory_);
  WEIR_TRY(property_list(f, {}, others));
  const bool has_others = !list_is_never(others);
  const uint32_t n = names.size();
  const auto n_required = static_cast<uint32_t>(std::count(required.begin(), required.end(), 1));
  const uint32_t most = has_others ? kNoLimit : n;
  const bool counts = f.min_properties > n_required || f.max_properties < most;
  const uint32_t max = counts && f.max_properties < most ? f.max_properties : kNoLimit;
  const uint32_t n_counts = !counts ? 1 : (max != kNoLimit ? max : f.min_properties) + 1;
  if (uint64_t{n_counts} * (n + 1) > kMostCounted && counts)
    return fail(WEIR_ERR_UNSUPPORTED, "%s: too many properties are counted",
                f.objects.empty() ? "#" : at(f.objects[0]));
  Dfa other(memory_);
  if (has_others) {
    if (names.empty()) {
      other.copy(plain_string());
    } else {
      WEIR_TRY(other_names(names, other));
    }
  }
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
      WEIR_TRY(property_list(f, names[i], list));
      is_never = list_is_never(list);
      text.clear();
      append_quoted(names[i], text);
    } else {
      list.append(others.data(), others.size());
      is_never = !has_others;
    }
    if (!is_never) rule = rule_of(list);
    for (uint32_t c = 0; c < n_counts; ++c) {
      const uint32_t here = key[place(c, i)], after = behind[place(c, i)];
      if (may_close(c, i)) mark(after, '}', kBefore, to);
      const bool is_full = max != kNoLimit && c == max;
      if (!is_full) mark(after, ',', kAround, here);
      if (is_known && required[i] == 0) b_.empty(here, key[place(c, i + 1)]);
      if (is_never || is_full) continue;
      const uint32_t colon = b_.add_node(), start = b_.add_node();
      if (is_known) {
        b_.literal(here, {text.data(), text.size()}, colon);
      } else {
        b_.dfa(here, other, colon);
      }
      mark(colon, ':', kAround, start);
      b_.call(start, rule, behind[place(next_count(c), is_known ? i + 1 : n)]);
    }
  }
  return {};
}

}  // namespace weir::constraint
