// text: the masks of constraints. A bit is set exactly when the token's bytes may follow, which is tried out token by
// token; ends of generation where the text is complete, control tokens and marks never; and no state takes long.
#include <random>
#include <string>
#include <vector>

#include "tests/cmocka_cpp.h"
#include "tests/text/text_test.h"
#include "text/constraint/constraint.h"

using namespace weir;
using namespace weir::constraint;
using namespace weir_test;

namespace {

constexpr std::string_view kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "nick": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 150}, "kind": {"enum": ["a", "ab", "abc", "b", "ca", "cb"]},
        "at": {"type": "string", "format": "date"}, "tags": {"type": "array", "items": {"type": "string"}},
        "more": {}}, "required": ["name"]})";
constexpr std::string_view kPersonText =
    R"({"name": "Ada \u00e9 \"x\"", "nick":"abcde",  "age" : 36, "kind": "abc", "at": "1999-12-31", )"
    R"("tags": ["a,b", "", "]"], "more": {"x": [1.5e3, null, {"y": " "}]}, "zz": "\ud83d\ude00"})";
constexpr std::string_view kGrammar =
    "root ::= expr\nexpr ::= term (ws [-+*] ws term)*\nterm ::= [0-9]{1,3} | \"(\" ws expr ws \")\" | name\n"
    "name ::= [a-z]+ (\"(\" expr? \")\")?\nws ::= \" \"?\n";
constexpr std::string_view kGrammarText = "12 + (ab(7*x)- 999) * f()";
constexpr std::string_view kAmbiguous = "root ::= (\"a\" | \"aa\" | \" \" | \"  \" | sub)*\nsub ::= \"(\" root \")\"\n";
constexpr std::string_view kAmbiguousText = "aaa  a(aa    (a)) a";

// Texts that go on with any character, with characters of one kind, with counts; where each place can be an end, and
// where none is. Literals of several bytes a character, which tokens cut.
constexpr std::string_view kLines =
    "root ::= (line \"\\n\")+\nline ::= \"- \" text (\": \" text)? | \"> \" [^\\n]{1,12} | \"\xC3\xA9\xE4\xBD\xA0=\" "
    "any\n"
    "text ::= word (\" \" word)*\nword ::= [^ \\n:]+\nany ::= (.{2,9} \"\\\\\")? ([a-z] [0-9]){0,3}\n";
constexpr std::string_view kLinesText =
    "- ab \xC3\xA9t\xC3\xA9 c: \xE4\xBD\xA0\xE5\xA5\xBD {x}\n> a (b), \xC3\xA9"
    "c\n\xC3\xA9\xE4\xBD\xA0=ab\xC3\xA9 "
    "1\\a1b2\n- 12\n";
constexpr std::string_view kPatterns =
    R"x({"type": "object", "properties": {"a": {"type": "string", "pattern": "^.{3,12}$"},
         "b": {"type": "string", "pattern": "^[A-Z]\\w+( [A-Z]\\w+)*$"}, "c": {"type": "string",
         "pattern": "^([^<>]*)(<b>[^<>]*</b>)?$"}, "d": {"type": "string", "minLength": 2, "maxLength": 7},
         "e": {"type": "string", "pattern": "^(ab|[^a])*$"}}, "additionalProperties": {"type": "string"}})x";
constexpr std::string_view kPatternsText =
    "{\"a\": \"12 \xC3\xA9, (x)\", \"b\": \"Ada Love_1\", \"c\": \"so\xE4\xBD\xA0 <b>bold</b>\", \"d\": "
    "\"abc\xC3\xA9{}\", "
    "\"e\": \"xyababz\xF0\x9F\x98\x80\", \"ab\": \"\xE5\xA5\xBD\\n\", \"\xC3\xA9\": \"\"}";

struct Model {
  explicit Model(const Tokenizer& tokenizer) : memory({}), trie(&memory), constraint(trie, &memory), t(tokenizer) {
    trie.build(tokenizer);
    words.resize(trie.n_words());
  }
  void compile(int32_t kind, std::string_view text) {
    const Status status = constraint.compile(kind, text);
    if (!status.ok()) fail_msg("%s", last_error_text());
    matcher = std::make_unique<Matcher>(constraint.grammar(), &memory);
    tried = std::make_unique<Matcher>(constraint.grammar(), &memory);
  }
  bool has(uint32_t token) const { return (words[token / 32] >> (token % 32) & 1) != 0; }

  // Compares the mask of the matcher's state with what its text and each token make.
  void check(std::string_view text) {
    constraint.mask(*matcher, words.data());
    assert_false(matcher->is_full());
    for (uint32_t i = 0; i < t.vocab_size(); ++i) {
      const auto token = static_cast<weir_token>(i);
      bool wanted = false;
      if (t.is_end_of_generation(token)) {
        wanted = matcher->is_complete();
      } else if (is_plain_token(t, token)) {
        tried->reset();
        tried->advance(text);
        tried->advance(t.decode(token, false, false));
        wanted = !tried->is_dead();
      }
      if (has(i) == wanted) continue;
      fail_msg("token %u '%s' after '%s': %d", i, std::string(t.decode(token, true, false)).c_str(),
               std::string(text).c_str(), has(i));
    }
  }
  // At every n-th byte of the text.
  void check_along(std::string_view text, size_t n) {
    matcher->reset();
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i % n == 0 || i == text.size()) check(text.substr(0, i));
      if (i < text.size()) matcher->advance(text.substr(i, 1));
    }
    assert_true(matcher->is_complete());
  }

  HostMemory memory;
  TokenTrie trie;
  Constraint constraint;
  const Tokenizer& t;
  std::unique_ptr<Matcher> matcher, tried;
  std::vector<uint32_t> words;
};

// All bytes, texts that JSON has, and pieces of the texts above, so that tokens end inside and behind of everything.
VocabParts small_vocab() {
  VocabParts parts = byte_level_parts();
  std::mt19937 random(7);
  const auto add = [&](std::string_view text) {
    std::string spelled;
    for (const char c : text) spelled += byte_letter(static_cast<uint8_t>(c));
    for (const std::string& other : parts.tokens) {
      if (other == spelled) return;
    }
    parts.add(spelled);
  };
  for (const std::string_view text : {"true", "false", "null", "\": \"", "\", \"", "\"},", "\"}",  "\"]", "  ", "    ",
                                      "{\"",  "\\\"",  "\\u",  "\\u0",   "00",     "123",  "aaaa", "((",  "))", ") "})
    add(text);
  for (const std::string_view text : {kPersonText, kGrammarText, kAmbiguousText, kLinesText, kPatternsText}) {
    for (int i = 0; i < 60; ++i) {
      const size_t at = random() % (text.size() - 7);
      add(text.substr(at, 2 + random() % 6));
    }
  }
  parts.add("<|control|>", 3);
  parts.add("<think>", 4);
  return parts;
}

void mask__is_what_may_follow(void**) {
  const Opened t(small_vocab().file());
  for (const auto& [kind, text, document] : {std::tuple{WEIR_CONSTRAINT_JSON_SCHEMA, kPerson, kPersonText},
                                             {WEIR_CONSTRAINT_GBNF, kGrammar, kGrammarText},
                                             {WEIR_CONSTRAINT_GBNF, kAmbiguous, kAmbiguousText},
                                             {WEIR_CONSTRAINT_GBNF, kLines, kLinesText},
                                             {WEIR_CONSTRAINT_JSON_SCHEMA, kPatterns, kPatternsText},
                                             {WEIR_CONSTRAINT_JSON, std::string_view(), kPersonText}}) {
    Model m(*t);
    m.compile(kind, text);
    m.check_along(document, 1);
    const uint64_t bytes = m.memory.bytes();
    m.check_along(document, 5);
    assert_int_equal(m.memory.bytes(), bytes);  // all of it was taken before
  }
}

void mask__of_a_real_vocabulary(void**) {
  const Opened t(vocab_path("gpt-2"));
  for (const auto& [kind, text, document] : {std::tuple{WEIR_CONSTRAINT_JSON_SCHEMA, kPerson, kPersonText},
                                             {WEIR_CONSTRAINT_GBNF, kLines, kLinesText},
                                             {WEIR_CONSTRAINT_JSON_SCHEMA, kPatterns, kPatternsText}}) {
    Model m(*t);
    m.compile(kind, text);
    m.check_along(document, 11);
  }
}

// Inside of a text, whatever it may be, most of the tree is taken or left in large parts.
void mask__sees_little_of_the_tree(void**) {
  const Opened t(vocab_path("gpt-2"));
  for (const auto& [kind, text, document] :
       {std::tuple{WEIR_CONSTRAINT_JSON_SCHEMA, kPerson, kPersonText},
        {WEIR_CONSTRAINT_JSON_SCHEMA, kPatterns, kPatternsText},
        {WEIR_CONSTRAINT_GBNF, std::string_view("root ::= \"> \" [^\\n]{1,60} \"\\n\" | [^ \\n]+ \"\\n\""),
         std::string_view("> free, text\n")}}) {
    Model m(*t);
    m.compile(kind, text);
    for (size_t i = 0; i < document.size(); ++i) {
      m.constraint.mask(*m.matcher, m.words.data());
      m.matcher->advance(document.substr(i, 1));
    }
    const MaskCache& cache = m.constraint.cache();
    assert_true(cache.n_walks() > 5);
    const uint64_t each = cache.n_seen() / cache.n_walks();
    if (each > m.trie.n_nodes() / 8)
      fail_msg("%llu of %u nodes", static_cast<unsigned long long>(each), m.trie.n_nodes());
  }
}

// The memory of a matcher is small and its states are many: it starts anew as often as it must.
void mask__survives_a_full_memory(void**) {
  const Opened t(small_vocab().file());
  Model m(*t);
  m.compile(WEIR_CONSTRAINT_GBNF, "root ::= \"[\" (root | [0-9]+) (\",\" (root | [0-9]+))* \"]\"");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "[1,";
  text += "7";
  for (int i = 0; i < 3000; ++i) text += i % 2 == 0 ? ",22]" : "]";
  m.matcher->reset();
  size_t next = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == next || i == text.size()) {
      m.check(std::string_view(text).substr(0, i));
      next += 2500;
    }
    if (i < text.size()) m.matcher->advance(std::string_view(text).substr(i, 1));
  }
  assert_true(m.matcher->is_complete());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(mask__is_what_may_follow), cmocka_unit_test(mask__of_a_real_vocabulary),
                              cmocka_unit_test(mask__sees_little_of_the_tree),
                              cmocka_unit_test(mask__survives_a_full_memory)};
  return cmocka_run_group_tests_name("text/token_mask", tests, nullptr, nullptr);
}
