// JSON schemas as grammars. What a value must satisfy is a list of schemas, all of which hold: so references with
// siblings, allOf, and anyOf beside other keywords are the same thing. Each different list is one rule.
#pragma once

#include <memory_resource>
#include <string_view>

#include "core/json_reader.h"
#include "core/status.h"
#include "text/constraint/grammar.h"
#include "text/constraint/numbers.h"

namespace weir::constraint {

class SchemaCompiler {
 public:
  static constexpr uint32_t kMaxMembers = 200, kMaxBranches = 200, kMaxProperties = 4000;

  SchemaCompiler(const JsonText& json, GrammarBuilder& builder, std::pmr::memory_resource* memory)
      : json_(json),
        b_(builder),
        memory_(memory),
        lists_(memory),
        rules_(memory),
        first_(memory),
        roots_(memory),
        string_(memory),
        character_(memory),
        integer_(memory),
        number_(memory),
        patterns_(memory),
        pattern_strings_(memory),
        marks_(memory) {
    marks_.resize(4 * 128, UINT32_MAX);
  }

  // The schemas at `root` and below refer to it as "#".
  void add_document(JsonText::Id root) { roots_.push_back(root); }
  // From `from` a value of the schema leads to `to`; rules are written by compile().
  void value(uint32_t from, JsonText::Id schema, uint32_t to);
  // From `from` these bytes lead to `to`, with white space on both sides or one.
  enum Spaces : uint8_t { kNone = 0, kBefore = 1, kBehind = 2, kAround = 3 };
  void mark(uint32_t from, char mark, Spaces spaces, uint32_t to);
  // Writes all rules that are needed and not written.
  Status compile();
  // The message for a flaw that GrammarBuilder::finish found.
  Status flawed(uint32_t rule, GrammarBuilder::Flaw flaw) const;
  // After GrammarBuilder::finish: whether a schema of its own has no value.
  Status check_values() const;

 private:
  using Id = JsonText::Id;
  using Entry = uint32_t;  // a schema, and which of its keywords were taken care of
  enum : uint32_t { kAnyOf = 1, kOneOf = 2, kAllOf = 4, kRef = 8, kShift = 4 };
  enum Type : uint32_t {
    kNull = 1,
    kBool = 2,
    kInteger = 4,
    kFraction = 8,
    kString = 16,
    kArray = 32,
    kObject = 64,
    kAnyType = 127
  };

  // What a list of schemas demands.
  struct Facts {
    explicit Facts(std::pmr::memory_resource* memory)
        : objects(memory), arrays(memory), patterns(memory), multiples(memory) {}
    uint32_t types = kAnyType;
    NumberRange range;
    uint32_t min_length = 0, max_length = kNoLimit, min_items = 0, max_items = kNoLimit, min_properties = 0,
             max_properties = kNoLimit;
    Id choices = JsonText::kNone;  // enum's array, or const's value
    bool is_const = false;
    PodVector<Id> objects, arrays;  // schemas with keywords of these
    PodVector<Id> patterns;         // values of pattern and format
    PodVector<Id> multiples;        // values of multipleOf
  };
  // The patternProperties of a list of schemas.
  struct NamePatterns {
    static constexpr uint32_t kMax = 4;  // each may double the kinds of names
    explicit NamePatterns(std::pmr::memory_resource* memory)
        : names{Dfa(memory), Dfa(memory), Dfa(memory), Dfa(memory)} {}
    uint32_t n = 0;
    Id owners[kMax] = {}, values[kMax] = {};  // the schema that has it, and what it says
    Dfa names[kMax];                          // with quotes
  };
  using List = PodVector<Entry>;

  uint32_t rule_of(List& list);
  Status write(uint32_t index);
  Status flatten(List& list, bool& is_never, Id& alone);
  Status expand(List& list, uint32_t at, PodVector<uint32_t>& came_from);
  Status resolve(Id ref, Id& target) const;
  Status check_keywords(Id schema);
  bool has_constraints(Entry entry) const;
  Status branches(const List& list, uint32_t from, uint32_t to, bool& done);
  Status check_disjoint(const List& rest, Id branches);
  Status are_disjoint(const List& a, const List& b, uint32_t depth, bool& disjoint);
  Status gather(const List& list, Facts& facts);
  Status gather_keyword(Id value, std::string_view key, Facts& facts);
  Status gather_types(Id value, uint32_t& types) const;
  Status read_count(Id value, uint32_t& out) const;
  Status read_decimal(Id value, Decimal& out) const;
  Status read_step(Id value, NumberStep& out) const;
  Status check_facts(const List& list, const Facts& facts, bool& is_empty) const;
  Status emit(const Facts& facts, uint32_t from, uint32_t to);
  Status emit_choices(const Facts& facts, uint32_t from, uint32_t to);
  Status emit_constant(Id value, uint32_t from, uint32_t to);
  Status is_allowed(const Facts& facts, Id value, bool& allowed);
  Status emit_numbers(const Facts& facts, bool integers, uint32_t from, uint32_t to);
  Status emit_string(const Facts& facts, uint32_t from, uint32_t to);
  Status string_automaton(const Facts& facts, Dfa& out);
  Status emit_array(const Facts& facts, uint32_t from, uint32_t to);
  Status emit_object(const Facts& facts, uint32_t from, uint32_t to);
  void property_list(const Facts& facts, const NamePatterns& patterns, std::string_view name, uint32_t matched,
                     List& out) const;
  Status name_patterns(const Facts& facts, NamePatterns& out) const;
  Status collect_names(const Facts& facts, PodVector<std::string_view>& names, PodVector<uint8_t>& required) const;
  Status other_names(const PodVector<std::string_view>& names, const Dfa& all, Dfa& out);
  Status add_others(const Facts& facts, const PodVector<std::string_view>& names, const NamePatterns& patterns,
                    PodVector<uint32_t>& terminals, PodVector<uint32_t>& rules);
  bool list_is_never(const List& list) const;
  Status wrong(Id value, const char* wanted) const;
  const char* at(Id where) const { return json_.path(where, path_, sizeof(path_)); }  // for messages
  const Dfa& plain_string();
  const Dfa& character();

  const JsonText& json_;
  GrammarBuilder& b_;
  std::pmr::memory_resource* memory_;
  WordSets lists_;
  PodVector<uint32_t> rules_;  // of each list
  PodVector<uint8_t> first_;   // by schema: its keywords were checked
  PodVector<Id> roots_;
  uint32_t n_written_ = 0;
  Dfa string_, character_, integer_, number_;
  WordSets patterns_;                    // of strings that have one and nothing else
  PodVector<uint32_t> pattern_strings_;  // their terminals, UINT32_MAX: no string has it
  PodVector<uint32_t> marks_;            // terminals, by mark and white space
  mutable char path_[300] = {};
};

}  // namespace weir::constraint
