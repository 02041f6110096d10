// text: constraints byte by byte. Verdicts on schemas and documents of tests/golden/schemas and on grammars; what is
// refused at compile time, with the place; what is hostile.
#include <chrono>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "tests/cmocka_cpp.h"
#include "tests/text/text_test.h"
#include "text/constraint/constraint.h"
#include "text/constraint/pattern.h"

using namespace weir;
using namespace weir::constraint;
using namespace weir_test;

namespace {

constexpr long kAccepted = -1, kFull = -3;

// A compiled text, and the verdicts of its matcher: kAccepted, or how many bytes may begin a text of it.
class Compiled {
 public:
  Compiled(int32_t kind, std::string_view text) : memory_({}), grammar_(&memory_) {
    GrammarBuilder builder(grammar_, &memory_);
    status_ = kind == WEIR_CONSTRAINT_GBNF    ? compile_gbnf(text, builder, &memory_)
              : kind == WEIR_CONSTRAINT_TOOLS ? compile_tools(text, builder, &memory_)
                                              : compile_schema(text, builder, &memory_);
    if (status_.ok()) matcher_ = std::make_unique<Matcher>(grammar_, &memory_);
  }
  Status status() const { return status_; }
  Matcher& matcher() { return *matcher_; }
  uint64_t bytes() const { return memory_.bytes(); }

  long verdict(std::string_view text) {
    matcher_->reset();
    for (size_t i = 0; i < text.size(); ++i) {
      matcher_->advance(text.substr(i, 1));
      if (matcher_->is_full()) return kFull;
      if (matcher_->is_dead()) return static_cast<long>(i);
    }
    return matcher_->is_complete() ? kAccepted : static_cast<long>(text.size());
  }

 private:
  HostMemory memory_;
  Grammar grammar_;
  Status status_;
  std::unique_ptr<Matcher> matcher_;
};

void check(Compiled& c, std::string_view text, long wanted) {
  assert_true(c.status().ok());
  const long got = c.verdict(text);
  if (got != wanted) fail_msg("'%s': %ld instead of %ld", std::string(text).c_str(), got, wanted);
}
void accepts(Compiled& c, std::initializer_list<std::string_view> texts) {
  for (const std::string_view text : texts) check(c, text, kAccepted);
}
void refuses(Compiled& c, std::initializer_list<std::pair<std::string_view, long>> texts) {
  for (const auto& [text, at] : texts) check(c, text, at);
}

Compiled schema(std::string_view text) { return Compiled(WEIR_CONSTRAINT_JSON_SCHEMA, text); }
Compiled gbnf(std::string_view text) { return Compiled(WEIR_CONSTRAINT_GBNF, text); }

void constraint__golden_schemas(void**) {
  const std::string all = read_file(WEIR_SOURCE_DIR "/tests/golden/schemas/generated.jsonl");
  HostMemory memory({});
  size_t n_schemas = 0, n_documents = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at);
    JsonText line(&memory);
    const std::string text = all.substr(at, end - at);
    assert_true(line.read(text, "golden").ok());
    // The schema as it is written: between its key and that of the documents.
    const size_t first = text.find(':') + 1, last = text.rfind(",\"documents\":[[");
    Compiled c = schema(std::string_view(text).substr(first, last - first));
    const JsonText::Id documents = line.find(0, "documents");
    for (JsonText::Id id = line.first(documents); id != JsonText::kNone; id = line.next(id)) {
      const JsonText::Id verdict = line.next(line.first(id));
      check(c, line.text(line.first(id)), std::stol(std::string(line.text(verdict))));
      ++n_documents;
    }
    ++n_schemas;
    at = end + 1;
  }
  assert_int_equal(n_schemas, 60);
  assert_int_equal(n_documents, 600);
}

void constraint__any_json(void**) {
  Compiled c = schema("true");
  accepts(c, {"null", "-0.5e+3", "[]", "{}", "[ 1 ,\n\"\\ud83d\\ude00\\/\" ]", "{\"a\" : {\"a\":[[{}]]}}",
              "\"\xF0\x9F\x98\x80\""});
  refuses(c, {{" 1", 0},
              {"1 ", 1},
              {"01", 1},
              {"1.", 2},
              {"[1,]", 3},
              {"{\"a\"}", 4},
              {"\"\\ud83d\"", 7},
              {"\"\xC0\x80\"", 1},
              {"\"\xED\xA0\x80\"", 2},
              {"\"\n\"", 1},
              {"[[1]", 4},
              {"nul", 3},
              {"'a'", 0}});
  check(c, "[" + std::string(64, ' ') + "1" + std::string(64, '\n') + "]", kAccepted);
  check(c, "[" + std::string(65, ' ') + "1]", 65);
  check(c, "[1" + std::string(65, '\t') + "]", 66);
}

void constraint__properties(void**) {
  Compiled c = schema(R"({"properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b", "c"],
                          "type": "object", "additionalProperties": {"type": "boolean"}})");
  accepts(c, {R"({"a":1,"b":null,"c":true})", R"({"b" : null, "c":true , "d":false})"});
  refuses(c, {{R"({"b":null,"a":1})", 11},
              {R"({"b":null})", 9},
              {R"({"b":null,"c":1})", 14},
              {R"({"c":true})", 2},
              {R"({"b":null,"c":true,"\u0061":true})", 26},
              {R"({"b":null,"c":true,"a":true})", 21}});
  Compiled counted = schema(R"({"type": "object", "properties": {"a": true, "b": true, "c": true},
                               "additionalProperties": false, "minProperties": 1, "maxProperties": 2})");
  accepts(counted, {R"({"a":1})", R"({"b":1,"c":1})"});
  refuses(counted, {{"{}", 1}, {R"({"a":1,"b":2,"c":3})", 12}});
  Compiled many = schema(R"({"type": "object", "minProperties": 3})");
  accepts(many, {R"({"a":1,"a":2,"c":3,"d":4})"});
  refuses(many, {{R"({"a":1,"b":2})", 12}});
}

void constraint__numbers(void**) {
  Compiled integers = schema(R"({"type": "integer", "exclusiveMinimum": -13, "maximum": 1050})");
  accepts(integers, {"-12", "0", "-0", "999", "1050", "7"});
  refuses(integers, {{"-13", 2}, {"1051", 3}, {"2000", 3}, {"1.0", 1}, {"1e2", 1}, {"00", 1}});
  Compiled numbers = schema(R"({"type": "number", "minimum": 0.05, "exclusiveMaximum": 3})");
  accepts(numbers, {"0.05", "0.050", "0.1", "2.999", "1", "1.0"});
  refuses(numbers, {{"0.04", 3}, {"3", 0}, {"0", 1}, {"0.0", 3}, {"-1", 0}});
  Compiled large = schema(R"({"type": "integer", "minimum": 123456789012345678901234567890})");
  accepts(large, {"123456789012345678901234567890", "999999999999999999999999999999999"});
  refuses(large, {{"123456789012345678901234567889", 30}, {"-1", 0}});  // one more digit would do
  // Every integer of a range, and none besides.
  for (const auto& [low, high] : {std::pair{-105, 98}, {7, 7}, {-1, 0}, {99, 101}, {0, 5}, {-1000, -9}}) {
    const std::string range =
        "{\"type\": \"integer\", \"minimum\": " + std::to_string(low) + ", \"maximum\": " + std::to_string(high) + "}";
    Compiled c = schema(range);
    for (int i = -1200; i <= 1200; ++i) {
      const bool accepted = c.verdict(std::to_string(i)) == kAccepted;
      assert_int_equal(accepted, i >= low && i <= high);
    }
  }
}

// Every multiple of a step, and no number besides, however many zeros it is written with.
void constraint__multiples(void**) {
  const auto text_of = [](long digits, int n_behind) {  // digits / 10^n_behind
    std::string text = std::to_string(std::labs(digits));
    if (n_behind > 0) {
      if (text.size() <= static_cast<size_t>(n_behind))
        text.insert(0, static_cast<size_t>(n_behind) + 1 - text.size(), '0');
      text.insert(text.size() - static_cast<size_t>(n_behind), ".");
    }
    return (digits < 0 ? "-" : "") + text;
  };
  struct Step {
    const char* text;
    long digits;  // in thousandths
  };
  for (const Step& step : {Step{"1", 1000},
                           {"7", 7000},
                           {"2.5", 2500},
                           {"0.25", 250},
                           {"0.001", 1},
                           {"1e1", 10000},
                           {"0.015", 15},
                           {"120", 120000},
                           {"300", 300000},
                           {"0.3", 300},
                           {"100", 100000}}) {
    Compiled any = schema("{\"type\": \"number\", \"multipleOf\": " + std::string(step.text) + "}");
    Compiled integer = schema("{\"type\": \"integer\", \"multipleOf\": " + std::string(step.text) + "}");
    Compiled some = schema("{\"type\": \"number\", \"minimum\": -1.2, \"exclusiveMaximum\": 310, \"multipleOf\": " +
                           std::string(step.text) + "}");
    for (long i = -1250; i <= 1250; ++i) {
      for (int n_behind = 0; n_behind < 4; ++n_behind) {
        const long thousandths = n_behind == 0 ? i * 1000 : n_behind == 1 ? i * 100 : n_behind == 2 ? i * 10 : i;
        const bool is_multiple = thousandths % step.digits == 0;
        const std::string text = text_of(i, n_behind);
        if ((any.verdict(text) == kAccepted) != is_multiple)
          fail_msg("%s as a multiple of %s", text.c_str(), step.text);
        assert_int_equal(any.verdict(text + (n_behind == 0 ? ".000000" : "000000")) == kAccepted, is_multiple);
        assert_int_equal(integer.verdict(text) == kAccepted, is_multiple && n_behind == 0);
        assert_int_equal(some.verdict(text) == kAccepted, is_multiple && thousandths >= -1200 && thousandths < 310000);
      }
    }
    const std::string large = std::to_string(step.digits) + std::string(30, '0');
    accepts(any, {"0", "-0", "0.0", large});
    assert_true(step.digits == 1 || any.verdict(large + ".0001") != kAccepted);
    assert_true(any.verdict("1e3") != kAccepted && any.verdict("-") != kAccepted && any.verdict("00") != kAccepted);
  }
  // Where it is clear early that nothing can come of it, nothing does.
  Compiled tens = schema(R"({"type": "integer", "minimum": 11, "maximum": 29, "multipleOf": 10})");
  accepts(tens, {"20"});
  refuses(tens, {{"1", 0}, {"25", 1}, {"200", 2}});
  Compiled both = schema(R"({"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]})");
  accepts(both, {"12", "-24", "0"});
  refuses(both, {{"4", 1}, {"6", 1}, {"18", 2}});
  Compiled choices =
      schema(R"({"enum": [0.1, 0.3, 2.0, 0.5, "x", 1e2], "multipleOf": 0.1, "allOf": [{"multipleOf": 0.2}]})");
  accepts(choices, {"2.0", "2", "\"x\"", "100"});
  refuses(choices, {{"0.1", 0}, {"0.5", 0}});
  Compiled mixed = schema(R"({"multipleOf": 3})");
  accepts(mixed, {"\"x\"", "[1]", "9", "9.0"});
  refuses(mixed, {{"10", 2}});
}

void constraint__pattern_properties(void**) {
  Compiled c = schema(R"({"type": "object", "properties": {"n_a": {"type": "integer"}, "z": {"type": "null"}},
                          "patternProperties": {"^n_": {"minimum": 5}, "_s$": {"type": "string"}},
                          "additionalProperties": {"type": "boolean"}, "required": ["x_s"]})");
  accepts(c, {R"({"x_s":"a"})", R"({"n_a":7,"z":null,"x_s":"a","other":true,"n_b":9,"n_s":"","n_c":[]})",
              R"({"x_s":"","n_":5,"_s":"","s":false})"});
  refuses(c, {{R"({"n_a":4,"x_s":"a"})", 8},          // the pattern holds for known names, too
              {R"({"x_s":1})", 7},                    // and for those that are required
              {R"({"x_s":"a","n_b":4})", 18},         // of patterns alone
              {R"({"x_s":"a","other":1})", 19},       // no pattern: additionalProperties
              {R"({"x_s":"a","n_s":9})", 17},         // both patterns: no number
              {R"({"x_s":"a","\u006e_b":4})", 16}});  // names in their usual spelling
  Compiled only = schema(R"({"type": "object", "patternProperties": {"^[a-c]$": {"type": "integer"}},
                             "additionalProperties": false, "minProperties": 1, "maxProperties": 2})");
  accepts(only, {R"({"a":1})", R"({"c":1,"b":2})"});
  refuses(only, {{"{}", 1}, {R"({"d":1})", 2}, {R"({"a":1,"b":2,"c":3})", 12}, {R"({"a":"x"})", 5}});
  Compiled together = schema(R"({"allOf": [{"type": "object", "patternProperties": {"a": {"type": "integer"}},
                                 "additionalProperties": false}, {"patternProperties": {"b": {"minimum": 3}}}]})");
  accepts(together, {R"({"a":1,"ab":3})", "{}"});
  refuses(together, {{R"({"b":4})", 3}, {R"({"ab":2})", 7}});
  Compiled never = schema(R"({"type": "object", "patternProperties": {"^_": false}})");
  accepts(never, {R"({"a_":1})"});
  refuses(never, {{R"({"_a":1})", 2}});
}

void constraint__uris(void**) {
  Compiled c = schema(R"({"type": "string", "format": "uri"})");
  accepts(c, {"\"http://a.example/b/c?d=e&f#g\"", "\"mailto:a@b.example\"", "\"urn:isbn:0451450523\"",
              "\"ftp://u:p@127.0.0.1:21/;type=a\"", "\"http://[::1]:8080/%7Ex\"", "\"file:///etc/hosts\"", "\"x+1.-:\"",
              "\"http://[v1.a:b]\"", "\"a:/b//c\"", "\"a:?q#f/?\""});
  refuses(c, {{"\"//a.example/b\"", 1},
              {"\"1a:b\"", 1},
              {"\"a\"", 2},
              {"\"http://a b\"", 9},
              {"\"http://[::1\"", 12},
              {"\"http://[::1]x\"", 13},
              {"\"a:%7\"", 5},
              {"\"http://a:8x\"", 12},  // somebody's password
              {"\"a:b#c#d\"", 6},
              {"\"a:<b>\"", 3},
              {"\"http://\xC3\xA9.example\"", 8}});
}

void constraint__strings(void**) {
  Compiled lengths = schema(R"({"type": "string", "minLength": 2, "maxLength": 3})");
  accepts(lengths, {"\"ab\"", "\"\xC3\xA9\\u00e9\\n\"", "\"\\ud83d\\ude00x\""});
  refuses(lengths, {{"\"a\"", 2}, {"\"abcd\"", 4}});
  Compiled pattern = schema(R"({"type": "string", "pattern": "^(a|b\"c)+$"})");
  accepts(pattern, {"\"a\"", "\"ab\\\"ca\""});
  refuses(pattern, {{"\"\"", 1}, {"\"b\"", 2}, {"\"ac\"", 2}});
  Compiled search = schema(R"({"type": "string", "pattern": "b+$", "maxLength": 4})");
  accepts(search, {"\"b\"", "\"xxbb\""});
  refuses(search, {{"\"xxxxb\"", 4}, {"\"bx\"", 3}});
  Compiled date = schema(R"({"type": "string", "format": "date"})");
  accepts(date, {"\"2024-02-29\""});
  refuses(date, {{"\"2024-02-30\"", 9}, {"\"2024-13", 7}});
  Compiled choices = schema(R"({"enum": ["a", "ab", "b\"", "c", "d", 1.0, null, {"x": [1, "y"]}]})");
  accepts(choices, {"\"a\"", "\"ab\"", "\"b\\\"\"", "1", "1.0", "null", "{ \"x\" : [1,\"y\"] }"});
  refuses(choices, {{"\"ac\"", 2}, {"2", 0}, {"{\"x\":[2", 6}});
}

void constraint__combined_schemas(void**) {
  Compiled base = schema(R"({"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"],
                             "anyOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]},
                                       {"properties": {"k": {"minimum": 5}}}]})");
  accepts(base, {R"({"k":1,"a":null})", R"({"k":7})"});
  refuses(base, {{R"({"k":1})", 6}});
  Compiled all = schema(R"({"allOf": [{"$ref": "#/$defs/n"}, {"maximum": 9}],
                            "$defs": {"n": {"type": "integer", "minimum": 3}}})");
  accepts(all, {"3", "9"});
  refuses(all, {{"2", 0}, {"10", 0}});
  Compiled one = schema(R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "x"}}, "required": ["t"]},
                                      {"type": "object", "properties": {"t": {"const": "y"}}, "required": ["t"]}]})");
  accepts(one, {R"({"t":"x"})", R"({"t":"y","u":1})"});
  refuses(one, {{R"({"t":"z"})", 6}});
  Compiled tree = schema(R"({"type": "object", "properties": {"v": {"type": "integer"},
                             "kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["v"],
                             "additionalProperties": false})");
  accepts(tree, {R"({"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]})"});
  refuses(tree, {{R"({"v":1,"kids":[{"v":2},{"kids":[]}]})", 25}});
  Compiled array = schema(R"({"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"},
                              "minItems": 1, "maxItems": 3})");
  accepts(array, {"[null]", "[ null , 1,2 ]"});
  refuses(array, {{"[]", 1}, {"[1]", 1}, {"[null,1,2,3]", 9}});
}

void constraint__tools(void**) {
  Compiled c(WEIR_CONSTRAINT_TOOLS,
             R"([{"type": "function", "function": {"name": "get", "parameters": {"type": "object",
                  "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"], "additionalProperties": false,
                  "$defs": {"n": {"type": "integer"}}}}}, {"type": "function", "function": {"name": "stop"}}])");
  accepts(c, {R"({"name":"get","arguments":{"x":5}})", R"({"name": "stop", "arguments": {}})"});
  refuses(c, {{R"({"name":"go","arguments":{}})", 10}, {R"({"name":"get","arguments":{}})", 27}});
}

void constraint__grammars(void**) {
  Compiled json = gbnf(
      "# JSON\n"
      "root ::= value\n"
      "value ::= object | array | string | number | \"true\" | \"null\"\n"
      "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\"\n"
      "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\"\n"
      "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\bfnrt] )* \"\\\"\"\n"
      "number ::= \"-\"? [0-9]+ (\".\" [0-9]{1,2})?\n"
      "ws ::= [ \\t\\n]*\n");
  accepts(json, {"{\"a\":[1,-2.25,{}],\"b\": true}", "[]", "\"\xC3\xA9\""});
  refuses(json, {{"{\"a\" :1}", 4}, {"1.255", 4}, {"\"\x7F\"", 1}, {"\"\xC3", 2}, {"\"\xFF", 1}});
  Compiled nested = gbnf("root ::= \"(\" root \")\" | x{2,}\nx ::= [ab] |\n  \"cc\"");
  accepts(nested, {"ab", "((cca))"});
  refuses(nested, {{"a", 1}, {"((ab)", 5}, {"(ab))", 4}, {"c", 1}});
  // All the ways at once: what is ambiguous takes no more than what is not.
  Compiled ambiguous = gbnf("root ::= s\ns ::= \"a\" s | \"aa\" s | s2\ns2 ::= \"(\" s \")\" | \"b\"\n");
  std::string long_text(3000, 'a');
  long_text += 'b';
  check(ambiguous, long_text, kAccepted);
  Compiled hidden = gbnf("root ::= a root2\na ::= \"x\"?\nroot2 ::= \"y\" | \"z\" root\n");
  accepts(hidden, {"y", "xzxzy"});
  Compiled right = gbnf(
      "root ::= \"[\" list \"]\"\nlist ::= [0-9] rest\n"
      "rest ::= \",\" list | \"\" | \"[\" list \"]\"\n");
  std::string digits = "[1";
  for (int i = 0; i < 20000; ++i) digits += ",7";
  check(right, digits + "]", kAccepted);
  Compiled counted = gbnf("root ::= .{3,4000} \"!\"");
  check(counted, std::string(4001, '!'), kAccepted);
  check(counted, std::string(4001, 'x'), 4000);
}

struct Bad {
  int32_t kind;
  std::string text;
  weir_status status;
  const char* message;
};

void constraint__refused(void**) {
  constexpr int32_t kSchema = WEIR_CONSTRAINT_JSON_SCHEMA, kGbnf = WEIR_CONSTRAINT_GBNF;
  std::string deep_schema, chain;
  for (int i = 0; i < 5000; ++i) deep_schema += "{\"items\":";
  for (int i = 0; i < 9000; ++i) chain += "a" + std::to_string(i) + " ::= a" + std::to_string(i + 1) + "\n";
  const std::string cut_type = "#/type: \"" + std::string(100, 'x') + "\" is not a type";
  const Bad all[] = {
      {kSchema, R"({"items": {"uniqueItems": true}})", WEIR_ERR_UNSUPPORTED, "#/items: \"uniqueItems\""},
      {kSchema, R"({"type": "strin"})", WEIR_ERR_INVALID_ARG,
       "#/type: \"strin\" is not a type: null, boolean, integer, number, string, array or object"},
      {kSchema, R"({"type": ["string", null]})", WEIR_ERR_INVALID_ARG, "#/type/1: null is not a type: null, boolean"},
      {kSchema, R"({"type": {}})", WEIR_ERR_INVALID_ARG, "#/type: an object is not a type"},
      {kSchema, "{\"type\": \"" + std::string(300, 'x') + "\"}", WEIR_ERR_INVALID_ARG, cut_type.c_str()},
      {kSchema, R"({"minLength": -1})", WEIR_ERR_INVALID_ARG, "#/minLength: -1 is not a whole number from 0 on"},
      {kSchema, R"({"maxItems": 1.5})", WEIR_ERR_INVALID_ARG, "#/maxItems: 1.5 is not a whole number from 0 on"},
      {kSchema, R"({"minimum": true})", WEIR_ERR_INVALID_ARG, "#/minimum: true is not a number"},
      {kSchema, R"({"enum": []})", WEIR_ERR_INVALID_ARG, "#/enum: an empty list is not a list of one or more values"},
      {kSchema, R"({"enum": "a"})", WEIR_ERR_INVALID_ARG, "#/enum: \"a\" is not a list of one or more values"},
      {kSchema, R"({"anyOf": []})", WEIR_ERR_INVALID_ARG,
       "#/anyOf: an empty list is not a list of one or more schemas"},
      {kSchema, R"({"allOf": {}})", WEIR_ERR_INVALID_ARG, "#/allOf: an object is not a list of one or more schemas"},
      {kSchema, R"({"pattern": 5})", WEIR_ERR_INVALID_ARG, "#/pattern: 5 is not a string"},
      {kSchema, R"({"format": null})", WEIR_ERR_INVALID_ARG, "#/format: null is not a string"},
      {kSchema, R"({"$ref": 5})", WEIR_ERR_INVALID_ARG, "#/$ref: 5 is not a string"},
      {kSchema, R"({"required": "a"})", WEIR_ERR_INVALID_ARG, "#/required: \"a\" is not a list of names"},
      {kSchema, R"({"required": ["a", 7]})", WEIR_ERR_INVALID_ARG, "#/required/1: 7 is not a string"},
      {kSchema, R"({"properties": [1]})", WEIR_ERR_INVALID_ARG, "#/properties: a list is not an object of schemas"},
      {kSchema, R"({"prefixItems": true})", WEIR_ERR_INVALID_ARG, "#/prefixItems: true is not a list of schemas"},
      {kSchema, R"({"minLength": 3, "maxLength": 2})", WEIR_ERR_INVALID_ARG, "#: minLength"},
      {kSchema, R"({"type": "array", "minItems": 3, "maxItems": 2})", WEIR_ERR_INVALID_ARG, "#: minItems"},
      {kSchema, R"({"properties": {"a": {"minimum": 3, "exclusiveMaximum": 3}}})", WEIR_ERR_INVALID_ARG,
       "#/properties/a: minimum"},
      {kSchema, R"({"allOf": [{"type": "string"}, {"type": "null"}]})", WEIR_ERR_INVALID_ARG, "#: no value"},
      {kSchema, R"({"type": "object", "required": ["a"], "properties": {"a": false}})", WEIR_ERR_INVALID_ARG,
       "#: no value"},
      {kSchema, R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", WEIR_ERR_INVALID_ARG, "without end"},
      {kSchema, R"({"allOf": [{"$ref": "#"}]})", WEIR_ERR_INVALID_ARG, "without end"},
      {kSchema, R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"},
                    "minItems": 1}}})",
       WEIR_ERR_INVALID_ARG, "#/$defs/a"},
      {kSchema, R"({"$ref": "#/$defs/b"})", WEIR_ERR_INVALID_ARG, "#/$ref: there is no"},
      {kSchema, R"({"$ref": "http://x/y"})", WEIR_ERR_UNSUPPORTED, "#/$ref: "},
      {kSchema, R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", WEIR_ERR_UNSUPPORTED, "#/oneOf/0: "},
      {kSchema, R"x({"type": "string", "pattern": "(?=a)"})x", WEIR_ERR_UNSUPPORTED, "#/pattern: "},
      {kSchema, R"x({"type": "string", "pattern": "(a"})x", WEIR_ERR_INVALID_ARG, "#/pattern: "},
      {kSchema, R"x({"type": "string", "pattern": "(a|b)*a(a|b){40}"})x", WEIR_ERR_UNSUPPORTED, "too many states"},
      {kSchema, R"({"type": "string", "format": "iri"})", WEIR_ERR_UNSUPPORTED,
       "\"iri\" is not supported; there are date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6 and "
       "uri"},
      {kSchema, R"({"multipleOf": 0})", WEIR_ERR_INVALID_ARG, "#/multipleOf: 0 is not a number above 0"},
      {kSchema, R"({"multipleOf": -2})", WEIR_ERR_INVALID_ARG, "#/multipleOf: -2 is not a number above 0"},
      {kSchema, R"({"multipleOf": "2"})", WEIR_ERR_INVALID_ARG, "#/multipleOf: \"2\" is not a number"},
      {kSchema, R"({"type": "integer", "multipleOf": 99991})", WEIR_ERR_UNSUPPORTED, "#/multipleOf: multipleOf needs"},
      {kSchema, R"({"multipleOf": 1.234567891})", WEIR_ERR_UNSUPPORTED, "#/multipleOf: multipleOf of more than 9"},
      {kSchema, R"({"items": {"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 5}, "minItems": 1,
                    "type": "array"})",
       WEIR_ERR_INVALID_ARG, "#/items: no value"},
      {kSchema, R"({"const": 7, "multipleOf": 2})", WEIR_ERR_INVALID_ARG, "#: no value"},
      {kSchema, R"({"patternProperties": {"a": 1}})", WEIR_ERR_INVALID_ARG, "#/patternProperties/a: 1 is not a schema"},
      {kSchema, R"({"patternProperties": []})", WEIR_ERR_INVALID_ARG,
       "#/patternProperties: an empty list is not an object of schemas"},
      {kSchema, R"({"patternProperties": {"(": true}})", WEIR_ERR_INVALID_ARG, "#/patternProperties/(: pattern"},
      {kSchema, R"({"patternProperties": {"a": true, "b": true, "c": true, "d": true, "e": true}})",
       WEIR_ERR_UNSUPPORTED, "more than 4 patterns"},
      {kSchema, R"({"type": "array", "maxItems": 100000000})", WEIR_ERR_UNSUPPORTED, "too large"},
      {kSchema, deep_schema, WEIR_ERR_INVALID_ARG, "nested too deeply"},
      {kSchema, "{\"const\": \"" + std::string(10 << 20, 'x'), WEIR_ERR_INVALID_ARG, "does not end"},
      {kSchema, std::string(17 << 20, ' '), WEIR_ERR_UNSUPPORTED, "bytes"},
      {kSchema, "[1", WEIR_ERR_INVALID_ARG, "line 1, byte 3"},
      {kSchema, "3", WEIR_ERR_INVALID_ARG, "#: 3 is not a schema: an object, true or false"},
      {WEIR_CONSTRAINT_TOOLS, "[]", WEIR_ERR_INVALID_ARG, "the tools: not a list of one or more"},
      {WEIR_CONSTRAINT_TOOLS, R"([{"function": {}}])", WEIR_ERR_INVALID_ARG, "#/0/function: a tool is an object with"},
      {kGbnf, "", WEIR_ERR_INVALID_ARG, "root"},
      {kGbnf, "root ::= expr\nexpr ::= term \"+\" term\nterm ::= expr | \"x\"\n", WEIR_ERR_UNSUPPORTED,
       "line 2: the rule \"expr\""},
      {kGbnf, "root ::= a? root \"b\" | \"c\"\na ::= \"a\"*", WEIR_ERR_UNSUPPORTED, "line 1: the rule \"root\""},
      {kGbnf, "root ::= \"a\" root", WEIR_ERR_INVALID_ARG, "line 1: the rule \"root\" has no text"},
      {kGbnf, "root ::= \"a\"\n\nx ::= nothing", WEIR_ERR_INVALID_ARG, "line 3: there is no rule \"nothing\""},
      {kGbnf, "root ::= \"a", WEIR_ERR_INVALID_ARG, "line 1: "},
      {kGbnf, "root ::= [b-a]", WEIR_ERR_INVALID_ARG, "line 1: "},
      {kGbnf, "root ::= (\"a\"", WEIR_ERR_INVALID_ARG, "line 1: "},
      {kGbnf, "root ::= <think>", WEIR_ERR_UNSUPPORTED, "tokens"},
      {kGbnf, "root ::= ((root{5000}){5000} | \"a\")", WEIR_ERR_UNSUPPORTED, nullptr},
      {kGbnf, "root ::= " + std::string(5000, '('), WEIR_ERR_UNSUPPORTED, "nested"},
      {kGbnf, "root ::= a0\n" + chain + "a9000 ::= root2\nroot2 ::= a0", WEIR_ERR_INVALID_ARG, "has no text"},
      {kGbnf, std::string(5 << 20, 'x'), WEIR_ERR_UNSUPPORTED, "bytes"},
  };
  // What the message about formats says there is.
  size_t n_formats = 0;
  const std::string names = std::string(kFormatNames) + ",";
  for (size_t at = 0, end; (end = names.find_first_of(", ", at)) != std::string::npos; at = end + 1) {
    const std::string name = names.substr(at, end - at);
    if (name.empty() || name == "and") continue;
    assert_true(Compiled(kSchema, R"({"type": "string", "format": ")" + name + "\"}").status().ok());
    ++n_formats;
  }
  assert_int_equal(n_formats, 10);
  for (const Bad& bad : all) {
    const auto started = std::chrono::steady_clock::now();
    const Compiled c(bad.kind, bad.text);
    const std::string head = bad.text.substr(0, 100);
    if (c.status().code() != bad.status)
      fail_msg("%s: status %d, %s", head.c_str(), c.status().code(), last_error_text());
    if (bad.message != nullptr && std::strstr(last_error_text(), bad.message) == nullptr)
      fail_msg("%s: '%s' is not in '%s'", head.c_str(), bad.message, last_error_text());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
    assert_true(taken.count() < 20.0);
  }
}

// Texts that nest without end fill the room of a matcher, which says so; a new text is followed again.
void constraint__deep_texts(void**) {
  Compiled c = schema("true");
  check(c, std::string(5000, '[') + std::string(5000, ']'), kAccepted);
  check(c, std::string(200000, '['), kFull);
  const uint64_t bytes = c.bytes();
  check(c, "[1]", kAccepted);
  check(c, std::string(200000, '['), kFull);
  assert_int_equal(c.bytes(), bytes);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(constraint__golden_schemas),
      cmocka_unit_test(constraint__any_json),
      cmocka_unit_test(constraint__properties),
      cmocka_unit_test(constraint__numbers),
      cmocka_unit_test(constraint__multiples),
      cmocka_unit_test(constraint__pattern_properties),
      cmocka_unit_test(constraint__uris),
      cmocka_unit_test(constraint__strings),
      cmocka_unit_test(constraint__combined_schemas),
      cmocka_unit_test(constraint__tools),
      cmocka_unit_test(constraint__grammars),
      cmocka_unit_test(constraint__refused),
      cmocka_unit_test(constraint__deep_texts),
  };
  return cmocka_run_group_tests_name("text/constraint", tests, nullptr, nullptr);
}
