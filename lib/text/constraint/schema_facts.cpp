// What the keywords of a list of schemas demand together.
#include <algorithm>

#include "text/constraint/json_strings.h"
#include "text/constraint/pattern.h"
#include "text/constraint/schema.h"

namespace weir::constraint {

using std::string_view;

Status SchemaCompiler::gather_types(Id value, uint32_t& types) const {
  struct Name {
    string_view name;
    uint32_t type;
  };
  static constexpr Name kNames[] = {
      {"null", kNull},     {"boolean", kBool}, {"integer", kInteger}, {"number", kInteger | kFraction},
      {"string", kString}, {"array", kArray},  {"object", kObject}};
  uint32_t found = 0;
  const bool is_list = json_.kind(value) == JsonText::kArray;
  for (Id id = is_list ? json_.first(value) : value; id != JsonText::kNone;
       id = is_list ? json_.next(id) : JsonText::kNone) {
    uint32_t type = 0;
    for (const Name& n : kNames) {
      if (json_.kind(id) == JsonText::kString && json_.text(id) == n.name) type = n.type;
    }
    if (type == 0) return wrong(id, "a type: null, boolean, integer, number, string, array or object");
    found |= type;
  }
  types &= found;
  return {};
}

Status SchemaCompiler::read_decimal(Id value, Decimal& out) const {
  if (json_.kind(value) != JsonText::kNumber) return wrong(value, "a number");
  if (!out.read(json_.text(value)))
    return fail(WEIR_ERR_UNSUPPORTED, "%s: numbers beyond %u digits are not supported", at(value), Decimal::kMaxDigits);
  return {};
}

Status SchemaCompiler::read_count(Id value, uint32_t& out) const {
  Decimal d;
  WEIR_TRY(read_decimal(value, d));
  if (d.negative || !d.is_integer()) return wrong(value, "a whole number from 0 on");
  if (d.exponent > 9) return fail(WEIR_ERR_UNSUPPORTED, "%s: counts beyond 999999999 are not supported", at(value));
  out = 0;
  for (int32_t i = 0; i < d.exponent; ++i)
    out = out * 10 + static_cast<uint32_t>(i < static_cast<int32_t>(d.n_digits) ? d.digits[i] - '0' : 0);
  return {};
}

Status SchemaCompiler::read_step(Id value, NumberStep& out) const {
  Decimal step;
  WEIR_TRY(read_decimal(value, step));
  if (step.negative || step.n_digits == 0) return wrong(value, "a number above 0");
  if (out.read(step)) return {};
  return fail(WEIR_ERR_UNSUPPORTED, "%s: multipleOf of more than %u digits is not supported", at(value),
              NumberStep::kMaxDigits);
}

Status SchemaCompiler::gather_keyword(Id value, string_view key, Facts& facts) {
  struct Count {
    string_view name;
    uint32_t Facts::*field;
    bool is_max;
  };
  static constexpr Count kCounts[] = {
      {"minLength", &Facts::min_length, false},         {"maxLength", &Facts::max_length, true},
      {"minItems", &Facts::min_items, false},           {"maxItems", &Facts::max_items, true},
      {"minProperties", &Facts::min_properties, false}, {"maxProperties", &Facts::max_properties, true}};
  for (const Count& c : kCounts) {
    if (key != c.name) continue;
    uint32_t n = 0;
    WEIR_TRY(read_count(value, n));
    facts.*c.field = c.is_max ? std::min(facts.*c.field, n) : std::max(facts.*c.field, n);
    return {};
  }
  if (key == "type") return gather_types(value, facts.types);
  if (key == "enum" || key == "const") {
    const bool is_const = key == "const";
    if (!is_const && (json_.kind(value) != JsonText::kArray || json_.size(value) == 0))
      return wrong(value, "a list of one or more values");
    if (facts.choices != JsonText::kNone)
      return fail(WEIR_ERR_UNSUPPORTED, "%s: two enum or const that hold together are not supported", at(value));
    facts.choices = value;
    facts.is_const = is_const;
    return {};
  }
  if (key.ends_with("inimum") || key.ends_with("aximum")) {
    Decimal bound;
    WEIR_TRY(read_decimal(value, bound));
    const bool exclusive = key.starts_with("ex");
    if (key.ends_with("inimum")) {
      facts.range.at_least(bound, exclusive);
    } else {
      facts.range.at_most(bound, exclusive);
    }
    return {};
  }
  if (key == "multipleOf") {
    NumberStep step;
    WEIR_TRY(read_step(value, step));
    facts.multiples.push_back(value);
    return {};
  }
  if (key == "pattern" || key == "format") {
    if (json_.kind(value) != JsonText::kString) return wrong(value, "a string");
    facts.patterns.push_back(value);
  }
  return {};
}

Status SchemaCompiler::gather(const List& list, Facts& facts) {
  for (const Entry entry : list) {
    const Id schema = entry >> kShift;
    if (json_.kind(schema) != JsonText::kObject) continue;
    for (Id id = json_.first(schema); id != JsonText::kNone; id = json_.next(id))
      WEIR_TRY(gather_keyword(id, json_.key(id), facts));
    const auto has = [&](const char* key) { return json_.find(schema, key) != JsonText::kNone; };
    if (has("properties") || has("required") || has("additionalProperties") || has("patternProperties"))
      facts.objects.push_back(schema);
    if (has("items") || has("prefixItems")) facts.arrays.push_back(schema);
  }
  return {};
}

// Contradictions. Those of one schema are mistakes; where several hold together, they only leave nothing over.
Status SchemaCompiler::check_facts(const List& list, const Facts& f, bool& is_empty) const {
  const char* why = nullptr;
  const uint32_t types = f.choices == JsonText::kNone ? f.types : 0;
  const uint32_t numbers = f.types & (kInteger | kFraction);
  if (f.types == 0) why = "no type is left";
  if (types == numbers && numbers != 0 && f.range.is_empty()) why = "minimum is above maximum";
  if ((types | kString) == kString && types != 0 && f.min_length > f.max_length) why = "minLength is above maxLength";
  if ((types | kArray) == kArray && types != 0 && f.min_items > f.max_items) why = "minItems is above maxItems";
  if ((types | kObject) == kObject && types != 0 && f.min_properties > f.max_properties)
    why = "minProperties is above maxProperties";
  // Also where other types are left, as it cannot be meant.
  if (list.size() == 1 && f.range.is_empty()) why = "minimum is above maximum";
  if (list.size() == 1 && f.min_length > f.max_length) why = "minLength is above maxLength";
  if (list.size() == 1 && f.min_items > f.max_items) why = "minItems is above maxItems";
  if (list.size() == 1 && f.min_properties > f.max_properties) why = "minProperties is above maxProperties";
  is_empty = why != nullptr;
  if (why == nullptr || list.size() > 1) return {};
  return fail(WEIR_ERR_INVALID_ARG, "%s: %s, so no value satisfies it", at(list[0] >> kShift), why);
}

// Whether a value of enum or const satisfies what stands beside it.
Status SchemaCompiler::is_allowed(const Facts& f, Id value, bool& allowed) {
  allowed = false;
  if (f.choices != JsonText::kNone) {
    bool found = f.is_const && json_.equal(f.choices, value);
    for (Id id = f.is_const ? JsonText::kNone : json_.first(f.choices); id != JsonText::kNone; id = json_.next(id))
      found |= json_.equal(id, value);
    if (!found) return {};
  }
  static constexpr uint32_t kTypes[] = {kNull, kBool, kBool, kFraction, kString, kArray, kObject};
  uint32_t type = kTypes[json_.kind(value)];
  Decimal number;
  if (type == kFraction) {
    WEIR_TRY(read_decimal(value, number));
    if (number.is_integer()) type = kInteger;
  }
  if ((f.types & type) == 0) return {};
  if (type == kInteger || type == kFraction) {
    allowed = f.range.has(number);
    for (const Id multiple : f.multiples) {
      NumberStep step;
      WEIR_TRY(read_step(multiple, step));
      allowed = allowed && step.has_multiple(number);
    }
    return {};
  }
  if (type == kString) {
    Dfa strings(memory_);
    PodVector<char> quoted(memory_);
    append_quoted(json_.text(value), quoted);
    WEIR_TRY(string_automaton(f, strings));
    return allowed = strings.matches({quoted.data(), quoted.size()}), Status();
  }
  const uint32_t n = json_.size(value);
  if (type == kArray) {
    if (!f.arrays.empty())
      return fail(WEIR_ERR_UNSUPPORTED, "%s: items beside enum or const is not supported", at(f.arrays[0]));
    return allowed = n >= f.min_items && n <= f.max_items, Status();
  }
  if (type != kObject) return allowed = true, Status();
  // In objects only what is required is looked at: enough to tell alternatives apart.
  for (const Id schema : f.objects) {
    if (json_.find(schema, "properties") == JsonText::kNone &&
        json_.find(schema, "patternProperties") == JsonText::kNone &&
        json_.find(schema, "additionalProperties") == JsonText::kNone)
      continue;
    return fail(WEIR_ERR_UNSUPPORTED, "%s: properties beside enum or const are not supported", at(schema));
  }
  allowed = n >= f.min_properties && n <= f.max_properties;
  return {};
}

// Only where something is demanded of strings does this differ from plain_string().
Status SchemaCompiler::string_automaton(const Facts& f, Dfa& out) {
  bool has_one = false;
  const auto take = [&](Dfa& dfa) {
    Dfa both(memory_);
    if (has_one && !intersect(out, dfa, false, kMaxDfaStates, both)) return false;
    out.take(has_one ? both : dfa);
    has_one = true;
    return true;
  };
  for (const Id id : f.patterns) {
    Dfa one(memory_);
    const string_view text = json_.text(id);
    const char* format = json_.key(id) == "format" ? format_pattern(text) : nullptr;
    if (json_.key(id) == "format" && format == nullptr) {
      return fail(WEIR_ERR_UNSUPPORTED, "%s: the format \"%.*s\" is not supported; there are %s", at(id),
                  static_cast<int>(std::min<size_t>(text.size(), 100)), text.data(), kFormatNames);
    }
    WEIR_TRY(make_pattern(memory_, format != nullptr ? format : text, at(id), one));
    if (!take(one)) return fail(WEIR_ERR_UNSUPPORTED, "%s: the pattern needs too many states", at(id));
  }
  if (f.min_length == 0 && f.max_length == kNoLimit && has_one) return {};
  Dfa length(memory_);
  const uint32_t max = f.max_length;
  if (!make_length(memory_, f.min_length, max, length) || !take(length)) {
    return fail(WEIR_ERR_UNSUPPORTED, "%s: these lengths beside a pattern, format or enum need too many states",
                f.patterns.empty() ? "#" : at(f.patterns[0]));
  }
  return {};
}

}  // namespace weir::constraint
