// Lists of schemas: references, allOf, anyOf and oneOf, and the rules that are made of them.
#include "text/constraint/schema.h"

#include <algorithm>
#include <cstdio>

namespace weir::constraint {

namespace {

using std::string_view;

enum class Use : uint8_t { kNote, kApplied, kConstrains };
struct Keyword {
  string_view name;
  Use use;
};
// Everything else is refused: to ignore a constraint would be to break it.
constexpr Keyword kKeywords[] = {{"$anchor", Use::kNote},
                                 {"$comment", Use::kNote},
                                 {"$defs", Use::kNote},
                                 {"$id", Use::kNote},
                                 {"$ref", Use::kApplied},
                                 {"$schema", Use::kNote},
                                 {"additionalProperties", Use::kConstrains},
                                 {"allOf", Use::kApplied},
                                 {"anyOf", Use::kApplied},
                                 {"const", Use::kConstrains},
                                 {"contentEncoding", Use::kNote},
                                 {"contentMediaType", Use::kNote},
                                 {"default", Use::kNote},
                                 {"definitions", Use::kNote},
                                 {"deprecated", Use::kNote},
                                 {"description", Use::kNote},
                                 {"enum", Use::kConstrains},
                                 {"examples", Use::kNote},
                                 {"exclusiveMaximum", Use::kConstrains},
                                 {"exclusiveMinimum", Use::kConstrains},
                                 {"format", Use::kConstrains},
                                 {"id", Use::kNote},
                                 {"items", Use::kConstrains},
                                 {"maxItems", Use::kConstrains},
                                 {"maxLength", Use::kConstrains},
                                 {"maxProperties", Use::kConstrains},
                                 {"maximum", Use::kConstrains},
                                 {"minItems", Use::kConstrains},
                                 {"minLength", Use::kConstrains},
                                 {"minProperties", Use::kConstrains},
                                 {"minimum", Use::kConstrains},
                                 {"multipleOf", Use::kConstrains},
                                 {"oneOf", Use::kApplied},
                                 {"pattern", Use::kConstrains},
                                 {"patternProperties", Use::kConstrains},
                                 {"prefixItems", Use::kConstrains},
                                 {"properties", Use::kConstrains},
                                 {"readOnly", Use::kNote},
                                 {"required", Use::kConstrains},
                                 {"title", Use::kNote},
                                 {"type", Use::kConstrains},
                                 {"writeOnly", Use::kNote}};

constexpr char kSomeSchemas[] = "a list of one or more schemas";
constexpr size_t kMaxShown = 100;  // bytes of a text in a message

const Keyword* find_keyword(string_view name) {
  for (const Keyword& k : kKeywords) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

// One part of a JSON pointer with its escapes undone.
bool same_name(string_view escaped, string_view name) {
  size_t at = 0;
  for (size_t i = 0; i < escaped.size(); ++i, ++at) {
    char c = escaped[i];
    if (c == '~' && i + 1 < escaped.size()) c = escaped[++i] == '0' ? '~' : '/';
    if (at == name.size() || name[at] != c) return false;
  }
  return at == name.size();
}

}  // namespace

// The message about a value that is none of those that its place takes.
Status SchemaCompiler::wrong(Id value, const char* wanted) const {
  static constexpr const char* kWords[] = {"null", "false", "true", "", "", "a list", "an object"};
  const JsonText::Kind kind = json_.kind(value);
  const bool has_text = kind == JsonText::kNumber || kind == JsonText::kString;
  const string_view text = has_text ? json_.text(value).substr(0, kMaxShown) : kWords[kind];
  const char* quote = kind == JsonText::kString ? "\"" : "";
  const bool is_empty = kind == JsonText::kArray && json_.size(value) == 0;
  return fail(WEIR_ERR_INVALID_ARG, "%s: %s%.*s%s is not %s", at(value), is_empty ? "an empty list" : quote,
              is_empty ? 0 : static_cast<int>(text.size()), text.data(), quote, wanted);
}

// The rule of a list; the list is sorted, and loses what is in it twice and what demands nothing.
uint32_t SchemaCompiler::rule_of(List& list) {
  std::sort(list.begin(), list.end());
  uint32_t n = 0;
  for (const Entry entry : list) {
    if ((n == 0 || list[n - 1] != entry) && has_constraints(entry)) list[n++] = entry;
  }
  list.resize(n);
  const uint32_t found = lists_.find_or_add(list.data(), list.size());
  if (found == rules_.size()) rules_.push_back(b_.add_rule(found));
  return rules_[found];
}

bool SchemaCompiler::has_constraints(Entry entry) const {
  const Id id = entry >> kShift;
  if (json_.kind(id) != JsonText::kObject) return json_.kind(id) != JsonText::kTrue;
  static constexpr string_view kApplied[] = {"anyOf", "oneOf", "allOf", "$ref"};
  for (Id member = json_.first(id); member != JsonText::kNone; member = json_.next(member)) {
    const Keyword* keyword = find_keyword(json_.key(member));
    if (keyword == nullptr || keyword->use == Use::kConstrains) return true;
    if (keyword->use == Use::kNote) continue;
    for (uint32_t i = 0; i < 4; ++i) {
      if (keyword->name == kApplied[i] && (entry & (1u << i)) == 0) return true;
    }
  }
  return false;
}

void SchemaCompiler::value(uint32_t from, Id schema, uint32_t to) {
  List list(memory_);
  list.push_back(schema << kShift);
  b_.call(from, rule_of(list), to);
}

Status SchemaCompiler::compile() {
  for (; n_written_ < lists_.size(); ++n_written_) {
    WEIR_TRY(write(n_written_));
    if (b_.is_full())
      return fail(WEIR_ERR_UNSUPPORTED, "the schema is too large: it needs more than %u rules", kMaxRules);
  }
  return {};
}

Status SchemaCompiler::write(uint32_t index) {
  List list(memory_);
  const std::span<const uint32_t> entries = lists_[index];
  list.append(entries.data(), static_cast<uint32_t>(entries.size()));
  const uint32_t from = b_.start(rules_[index]), to = b_.end(rules_[index]);
  bool is_never = false, done = false;
  Id alone = JsonText::kNone;
  WEIR_TRY(flatten(list, is_never, alone));
  if (is_never) return {};
  if (alone != JsonText::kNone) return value(from, alone, to), Status();
  WEIR_TRY(branches(list, from, to, done));
  if (done) return {};
  Facts facts(memory_);
  WEIR_TRY(gather(list, facts));
  bool is_empty = false;
  WEIR_TRY(check_facts(list, facts, is_empty));
  return is_empty ? Status() : emit(facts, from, to);
}

Status SchemaCompiler::check_keywords(Id schema) {
  if (json_.is_bool(schema)) return {};
  if (json_.kind(schema) != JsonText::kObject) return wrong(schema, "a schema: an object, true or false");
  if (schema >= first_.size()) first_.resize(schema + 1, 0);
  if (first_[schema] != 0) return {};
  first_[schema] = 1;
  for (Id id = json_.first(schema); id != JsonText::kNone; id = json_.next(id)) {
    const string_view name = json_.key(id);
    if (find_keyword(name) == nullptr) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: \"%.*s\" is not supported", at(schema), static_cast<int>(name.size()),
                  name.data());
    }
  }
  return {};
}

// Takes in what the list refers to and what allOf names, until nothing is left. `alone`: the list is no more than this
// one schema, which has a rule of its own.
Status SchemaCompiler::flatten(List& list, bool& is_never, Id& alone) {
  PodVector<uint32_t> came_from(memory_);  // of each entry: the one that named it
  came_from.resize(list.size(), UINT32_MAX);
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Id schema = list[i] >> kShift;
    WEIR_TRY(check_keywords(schema));
    if (json_.is_bool(schema)) {
      is_never |= json_.kind(schema) == JsonText::kFalse;
      continue;
    }
    const Id ref = (list[i] & kRef) != 0 ? JsonText::kNone : json_.find(schema, "$ref");
    if (ref != JsonText::kNone && list.size() == 1 && !has_constraints(list[0] | kRef)) return resolve(ref, alone);
    WEIR_TRY(expand(list, i, came_from));
  }
  return {};
}

Status SchemaCompiler::expand(List& list, uint32_t i, PodVector<uint32_t>& came_from) {
  const Id schema = list[i] >> kShift;
  const Entry done = list[i] & (kRef | kAllOf);
  list[i] |= kRef | kAllOf;
  const auto add = [&](Id target) -> Status {
    for (uint32_t up = i; up != UINT32_MAX; up = came_from[up]) {
      if (list[up] >> kShift == target)
        return fail(WEIR_ERR_INVALID_ARG, "%s: it refers to itself without end", at(target));
    }
    const bool is_there = std::any_of(list.begin(), list.end(), [&](Entry e) { return e >> kShift == target; });
    if (is_there) return {};
    if (list.size() == kMaxMembers)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u schemas hold together", at(schema), kMaxMembers);
    list.push_back(target << kShift);
    came_from.push_back(i);
    return {};
  };
  const Id ref = json_.find(schema, "$ref"), all = json_.find(schema, "allOf");
  if (ref != JsonText::kNone && (done & kRef) == 0) {
    Id target = 0;
    WEIR_TRY(resolve(ref, target));
    WEIR_TRY(add(target));
  }
  if (all == JsonText::kNone || (done & kAllOf) != 0) return {};
  if (json_.kind(all) != JsonText::kArray || json_.size(all) == 0) return wrong(all, kSomeSchemas);
  for (Id id = json_.first(all); id != JsonText::kNone; id = json_.next(id)) WEIR_TRY(add(id));
  return {};
}

Status SchemaCompiler::resolve(Id ref, Id& target) const {
  if (json_.kind(ref) != JsonText::kString) return wrong(ref, "a string");
  const string_view text = json_.text(ref);
  const auto n = static_cast<int>(std::min<size_t>(text.size(), 200));
  if (!text.starts_with('#')) {
    return fail(WEIR_ERR_UNSUPPORTED, "%s: \"%.*s\" is not a place in this schema, such as #/$defs/a", at(ref), n,
                text.data());
  }
  target = ref;
  while (json_.parent(target) != JsonText::kNone && std::find(roots_.begin(), roots_.end(), target) == roots_.end())
    target = json_.parent(target);
  for (size_t at_part = 1; at_part < text.size();) {
    const size_t end = std::min(text.find('/', at_part + 1), text.size());
    const string_view part = text.substr(at_part + 1, end - at_part - 1);
    Id found = JsonText::kNone;
    uint32_t index = 0;
    const bool is_object = json_.kind(target) == JsonText::kObject, is_array = json_.kind(target) == JsonText::kArray;
    for (Id id = is_object || is_array ? json_.first(target) : JsonText::kNone; id != JsonText::kNone;
         id = json_.next(id), ++index) {
      char number[16];
      std::snprintf(number, sizeof(number), "%u", index);
      if (is_object ? same_name(part, json_.key(id)) : part == number) found = id;
    }
    if (text[at_part] != '/' || found == JsonText::kNone)
      return fail(WEIR_ERR_INVALID_ARG, "%s: there is no \"%.*s\"", at(ref), n, text.data());
    target = found;
    at_part = end;
  }
  return {};
}

// The first anyOf or oneOf that the list has: a rule for each of its branches together with the rest of the list.
Status SchemaCompiler::branches(const List& list, uint32_t from, uint32_t to, bool& done) {
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Id schema = list[i] >> kShift;
    for (const Entry flag : {Entry{kAnyOf}, Entry{kOneOf}}) {
      const Id all = json_.find(schema, flag == kAnyOf ? "anyOf" : "oneOf");
      if ((list[i] & flag) != 0 || all == JsonText::kNone) continue;
      if (json_.kind(all) != JsonText::kArray || json_.size(all) == 0) return wrong(all, kSomeSchemas);
      List rest(memory_);
      rest.append(list.data(), list.size());
      rest[i] |= flag;
      if (flag == kOneOf) WEIR_TRY(check_disjoint(rest, all));
      for (Id id = json_.first(all); id != JsonText::kNone; id = json_.next(id)) {
        List branch(memory_);
        branch.append(rest.data(), rest.size());
        branch.push_back(id << kShift);
        b_.call(from, rule_of(branch), to);
      }
      done = true;
      return {};
    }
  }
  return {};
}

// oneOf is anyOf where no value is in two of its branches.
Status SchemaCompiler::check_disjoint(const List& rest, Id all) {
  if (json_.size(all) > kMaxBranches)
    return fail(WEIR_ERR_UNSUPPORTED, "%s: more than %u alternatives", at(all), kMaxBranches);
  for (Id a = json_.first(all); a != JsonText::kNone; a = json_.next(a)) {
    for (Id b = json_.next(a); b != JsonText::kNone; b = json_.next(b)) {
      List one(memory_), other(memory_);
      one.append(rest.data(), rest.size());
      other.append(rest.data(), rest.size());
      one.push_back(a << kShift);
      other.push_back(b << kShift);
      bool disjoint = false;
      WEIR_TRY(are_disjoint(one, other, 0, disjoint));
      if (disjoint) continue;
      return fail(WEIR_ERR_UNSUPPORTED,
                  "%s: oneOf is supported only where no value can be in two of its alternatives; "
                  "this one may overlap with a later one (anyOf allows that)",
                  at(a));
    }
  }
  return {};
}

// False at `disjoint` where it is not clear.
Status SchemaCompiler::are_disjoint(const List& a, const List& b, uint32_t depth, bool& disjoint) {
  disjoint = false;
  Facts facts[2] = {Facts(memory_), Facts(memory_)};
  for (uint32_t i = 0; i < 2; ++i) {
    List list(memory_);
    list.append((i == 0 ? a : b).data(), (i == 0 ? a : b).size());
    bool is_never = false;
    Id alone = JsonText::kNone;
    for (uint32_t n_refs = 0;; ++n_refs) {
      WEIR_TRY(flatten(list, is_never, alone));
      if (alone == JsonText::kNone) break;
      if (n_refs == kMaxMembers) return {};
      list.resize(1);
      list[0] = alone << kShift;
      alone = JsonText::kNone;
    }
    if (is_never) return disjoint = true, Status();
    WEIR_TRY(gather(list, facts[i]));
  }
  const Facts &x = facts[0], &y = facts[1];
  const uint32_t common = x.types & y.types;
  if (x.choices != JsonText::kNone) {
    for (Id id = x.is_const ? x.choices : json_.first(x.choices); id != JsonText::kNone;
         id = x.is_const ? JsonText::kNone : json_.next(id)) {
      bool allowed = false;
      if (json_.kind(id) >= JsonText::kArray && y.choices == JsonText::kNone) return {};
      WEIR_TRY(is_allowed(y, id, allowed));
      if (allowed) return {};
    }
    return disjoint = true, Status();
  }
  if (y.choices != JsonText::kNone) return depth == 0 || depth < 8 ? are_disjoint(b, a, depth + 8, disjoint) : Status();
  if ((common & ~uint32_t{kObject | kInteger | kFraction}) != 0) return {};
  if ((common & (kInteger | kFraction)) != 0) {
    NumberRange both = x.range;
    if (y.range.has_min) both.at_least(y.range.min, y.range.above_min);
    if (y.range.has_max) both.at_most(y.range.max, y.range.below_max);
    if (!both.is_empty()) return {};
  }
  if ((common & kObject) == 0 || depth % 8 > 3) return disjoint = (common & kObject) == 0, Status();
  for (const Facts& f : facts) {
    for (const Id schema : f.objects) {
      if (json_.find(schema, "patternProperties") != JsonText::kNone) return {};
    }
  }
  const NamePatterns none(memory_);
  PodVector<string_view> names(memory_), others(memory_);
  PodVector<uint8_t> required(memory_), also(memory_);
  WEIR_TRY(collect_names(x, names, required));
  WEIR_TRY(collect_names(y, others, also));
  for (uint32_t i = 0; i < names.size() && !disjoint; ++i) {
    const auto* found = std::find(others.begin(), others.end(), names[i]);
    if (required[i] == 0 || found == others.end() || also[static_cast<size_t>(found - others.begin())] == 0) continue;
    List one(memory_), other(memory_);
    property_list(x, none, names[i], 0, one);
    property_list(y, none, names[i], 0, other);
    WEIR_TRY(are_disjoint(one, other, depth % 8 + 1, disjoint));
  }
  return {};
}

Status SchemaCompiler::flawed(uint32_t rule, GrammarBuilder::Flaw flaw) const {
  const std::span<const uint32_t> list = lists_[std::min(b_.where(rule), lists_.size() - 1)];
  const char* where = list.empty() ? "#" : at(list[0] >> kShift);
  if (flaw == GrammarBuilder::Flaw::kTooLarge)
    return fail(WEIR_ERR_UNSUPPORTED, "the schema is too large: it needs more than %u rules", kMaxRules);
  if (flaw == GrammarBuilder::Flaw::kLeftRecursion)
    return fail(WEIR_ERR_INVALID_ARG, "%s: it refers to itself without end", where);
  return fail(WEIR_ERR_INVALID_ARG, "%s: no value satisfies it: it contradicts itself, or needs itself without end",
              where);
}

Status SchemaCompiler::check_values() const {
  for (uint32_t i = lists_.size(); i-- > 0;) {
    const std::span<const uint32_t> list = lists_[i];
    if (list.size() != 1 || b_.has_text(rules_[i])) continue;
    if (list[0] % (1u << kShift) == 0 && json_.kind(list[0] >> kShift) == JsonText::kObject)
      return flawed(rules_[i], GrammarBuilder::Flaw::kNoText);
  }
  return {};
}

}  // namespace weir::constraint
