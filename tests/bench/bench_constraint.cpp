// What constraints take: compiling, the step of a mask (the last token followed, the next mask made) and memory, for
// several schemas and grammars, as an answer goes through documents of them token by token. Times are the thread's own
// and the least of three runs, so that other programs disturb little; each run begins with nothing known. A document is
// split into the longest tokens that fit, at times into shorter ones. One JSON line for each vocabulary and constraint.
//
//   bench_constraint [-v VOCABULARY.gguf]... [-n TOKENS]... [-c NAME] [-d DOCUMENTS]
//
// -n: a vocabulary of so many tokens that is made up here, with words, endings, digits, marks and scripts in about the
// shares that real ones have.
#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/bench/session_bench.h"
#include "tests/text/text_test.h"
#include "text/constraint/constraint.h"

namespace {

using namespace weir;
using namespace weir::constraint;
using namespace weir_test;
using session_bench::thread_us;

constexpr int kRuns = 3;
constexpr size_t kFirst = 32;  // steps in which much is seen for the first time

// ------------------------------------------------------------------------------------------------ a made-up vocabulary

class Vocabulary {
 public:
  Bytes make(uint32_t n_tokens) {
    for (const std::string_view run : {" ", "\n", "\t", "-", "=", "*", "#", "_", ".", "/"}) {
      std::string text;
      for (int i = 0; i < 16; ++i) put(text += run);
    }
    put_marks();
    for (int i = 0; i < 1000; ++i) put(std::to_string(i));
    while (parts_.tokens.size() + 3 < n_tokens) {
      const uint32_t kind = random_.below(100);
      if (kind < 46) {
        put(" " + word(1 + random_.below(3)));
      } else if (kind < 62) {
        put(word(1 + random_.below(3)));
      } else if (kind < 72) {
        put(capital(random_.below(2) == 0 ? " " : "", word(1 + random_.below(3))));
      } else if (kind < 78) {
        put(capital(word(1), word(1 + random_.below(2))));
      } else if (kind < 80) {
        put(mark() + (random_.below(2) == 0 ? mark() : "") + word(1));
      } else {
        put(script());
      }
    }
    return parts_.file();
  }

 private:
  void put(const std::string& text) {
    if (!seen_.insert(text).second || text.size() < 2) return;
    std::string spelled;
    for (const char c : text) spelled += byte_letter(static_cast<uint8_t>(c));
    parts_.add(spelled);
  }
  std::string word(uint32_t n_syllables) {
    static constexpr const char* kOnsets[] = {"",  "b",  "c",  "d",  "f",  "g",  "h",  "l",  "m",  "n",  "p",
                                              "r", "s",  "t",  "v",  "w",  "st", "th", "ch", "pr", "tr", "con",
                                              "k", "sh", "re", "un", "ex", "j",  "qu", "z",  "y",  "in"};
    static constexpr const char* kVowels[] = {"a", "e", "i", "o", "u", "ea", "io", "ou", "ie", "y"};
    static constexpr const char* kCodas[] = {"", "", "", "n", "r", "s", "t", "l", "d", "m", "ng", "nt", "st", "ck"};
    std::string out;
    for (uint32_t i = 0; i < n_syllables; ++i) {
      out += kOnsets[random_.below(std::size(kOnsets))];
      out += kVowels[random_.below(std::size(kVowels))];
      out += kCodas[random_.below(std::size(kCodas))];
    }
    return out;
  }
  static std::string capital(const std::string& before, std::string text) {
    text[0] = static_cast<char>(text[0] & ~0x20);
    return before + text;
  }
  std::string mark() { return std::string(1, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"[random_.below(32)]); }
  void put_marks() {
    for (int i = 0; i < 1500; ++i) {
      std::string text = random_.below(3) == 0 ? " " : "";
      for (uint32_t k = 1 + random_.below(4); k > 0; --k) text += mark();
      if (random_.below(5) == 0) text += "\n";
      put(text);
    }
    for (const char* text : {"\":", "\",", " \"",  "{\"",   "\"}",  "\": \"", "\", \"", "},",   "\"},", "],",   "[\"",
                             "\"]", "{\n", "true", "false", "null", "\":\"",  "\",\"",  "\"\n", "\\n",  "\\\"", "\\u"})
      put(text);
  }
  std::string script() {
    static constexpr uint32_t kFirsts[][2] = {{0x4E00, 6000}, {0x4E00, 6000}, {0x4E00, 2000}, {0x430, 32},
                                              {0x430, 32},    {0xAC00, 3000}, {0x627, 36},    {0x3042, 80},
                                              {0xE0, 30},     {0x5D0, 27},    {0xE01, 46},    {0x1F600, 80}};
    const auto& range = kFirsts[random_.below(std::size(kFirsts))];
    std::string out = random_.below(4) == 0 ? " " : "";
    for (uint32_t k = 1 + random_.below(range[1] > 1000 ? 3 : 6); k > 0; --k)
      out += utf8(range[0] + random_.below(range[1]));
    return out;
  }

  Random random_{20};
  VocabParts parts_ = byte_level_parts();
  std::set<std::string> seen_;
};

// ---------------------------------------------------------------------------------------------- schemas and documents

struct Case {
  const char* name;
  int32_t kind;
  std::string text;
  std::string (*document)(Random&);
};

std::string choose(Random& random, std::initializer_list<const char*> all) {
  return all.begin()[random.below(static_cast<uint32_t>(all.size()))];
}
std::string words(Random& random, uint32_t most) {
  std::string out;
  for (uint32_t i = 1 + random.below(most); i > 0; --i) {
    out += choose(random, {"the quick", "Fox", "jumps over", "a lazy dog", "caf\xC3\xA9", "\xE4\xBD\xA0\xE5\xA5\xBD",
                           "12:30", "it's", "e.g. this", "\\\"quoted\\\"", "line\\nbreak", "\\u00e9t\\u00e9", "x < y",
                           "\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82", "https://example.org/a?b=c#d"});
    if (i > 1) out += " ";
  }
  return out;
}
std::string number(Random& random) {
  return std::to_string(random.below(1000)) + "." + std::to_string(random.below(90));
}
std::string quoted(const std::string& text) { return "\"" + text + "\""; }

constexpr const char kSmall[] =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0,
        "maximum": 150}, "note": {"type": "string", "maxLength": 200}, "ok": {"type": "boolean"}},
        "required": ["name", "age", "note", "ok"], "additionalProperties": false})";
std::string small_document(Random& random) {
  return "{\"name\": " + quoted(words(random, 3)) + ", \"age\": " + std::to_string(random.below(150)) +
         ", \"note\": " + quoted(words(random, 8)) + ", \"ok\": " + choose(random, {"true", "false"}) + "}";
}

std::string property(uint32_t i) {
  static constexpr const char* kWords[] = {"id",         "name",  "street", "city",  "total",
                                           "created_at", "owner", "count",  "price", "is_open"};
  return std::string(kWords[i % 10]) + (i < 10 ? "" : "_" + std::to_string(i / 10));
}
std::string hundred(bool is_closed) {
  std::string out = R"({"type": "object", "properties": {)";
  for (uint32_t i = 0; i < 100; ++i) {
    out += (i == 0 ? "" : ", ") + quoted(property(i)) + ": ";
    out +=
        std::array{R"({"type": "string"})", R"({"type": "integer"})", R"({"type": "boolean"})",
                   R"({"type": "array", "items": {"type": "number"}})", R"({"enum": ["red", "green", "blue"]})"}[i % 5];
  }
  return out + R"(}, "required": ["id", "total_4"], "additionalProperties": )" +
         (is_closed ? "false}" : "{\"type\": \"string\"}}");
}
std::string hundred_document(Random& random) {
  std::string out = "{";
  for (uint32_t i = 0; i < 100; ++i) {
    if (i != 0 && i != 44 && random.below(5) < 3) continue;
    out += (i == 0 ? "" : ", ") + quoted(property(i)) + ": ";
    out += i % 5 == 0   ? quoted(words(random, 4))
           : i % 5 == 1 ? std::to_string(random.below(100000))
           : i % 5 == 2 ? choose(random, {"true", "false"})
           : i % 5 == 3 ? "[" + number(random) + ", " + number(random) + "]"
                        : choose(random, {"\"red\"", "\"green\"", "\"blue\""});
  }
  return out + "}";
}
std::string open_document(Random& random) {
  std::string out = hundred_document(random);
  out.pop_back();
  for (int i = 0; i < 6; ++i)
    out += ", " + quoted(choose(random, {"idle", "names", "x", "street_", "owner_99", "na\xC3\xAFve", "creation"})) +
           ": " + quoted(words(random, 2));
  return out + "}";
}

constexpr const char kNested[] =
    R"x({"type": "object", "properties": {"orders": {"type": "array", "items": {"type": "object", "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]{4}(-[a-z]+)?$"},
        "title": {"type": "string", "pattern": "^.{3,80}$"},
        "person": {"type": "string", "pattern": "^[A-Z]\\w+( [A-Z]\\w+)*$"},
        "mail": {"type": "string", "format": "email"}, "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {
          "text": {"type": "string", "pattern": "^([^<>]*)(<b>[^<>]*</b>)?$"},
          "amount": {"type": "number", "minimum": 0, "exclusiveMaximum": 100000}},
          "required": ["text", "amount"], "additionalProperties": false}}},
        "required": ["code", "title", "person", "mail", "at", "lines"], "additionalProperties": false}}},
        "required": ["orders"], "additionalProperties": false})x";
std::string nested_document(Random& random) {
  std::string out = "{\"orders\": [";
  for (uint32_t i = 0; i < 3; ++i) {
    out += (i == 0 ? "" : ", ") + std::string("{\"code\": \"AB-") + std::to_string(1000 + random.below(9000)) +
           choose(random, {"", "-extra", "-red"}) + "\", \"title\": " +
           quoted(choose(random,
                         {"a long title of a book", "The name: of \xE4\xBD\xA0\xE5\xA5\xBD", "Go! <now> or never"})) +
           ", \"person\": " + quoted(choose(random, {"Ada Lovelace", "Grace Hopper", "Alan Mathison Turing"})) +
           ", \"mail\": \"someone.else" + std::to_string(random.below(99)) + "@mail.example.org\", \"at\": \"2024-0" +
           std::to_string(1 + random.below(9)) + "-17T12:30:59Z\", \"lines\": [";
    for (uint32_t k = 0; k < 2; ++k) {
      out += (k == 0 ? "" : ", ") + std::string("{\"text\": \"some words ") + choose(random, {"", "<b>bold</b>"}) +
             "\", \"amount\": " + number(random) + "}";
    }
    out += "]}";
  }
  return out + "]}";
}

std::string enumeration() {
  std::string out = R"({"type": "array", "items": {"enum": [)";
  Random random(5);
  for (uint32_t i = 0; i < 300; ++i) {
    std::string word;
    for (uint32_t k = 2 + random.below(3); k > 0; --k)
      word += choose(random, {"ab", "con", "ter", "line", "st", "o", "re"});
    out += (i == 0 ? "" : ", ") + quoted(word + std::to_string(i));
  }
  return out + ", \"abcon\", \"linestore\", \"other\"]}}";
}
std::string enumeration_document(Random& random) {
  std::string out = "[\"other\"";
  for (int i = 0; i < 20; ++i) out += ", " + quoted(choose(random, {"abcon", "linestore", "other"}));
  return out + "]";
}

constexpr const char kTree[] =
    R"x({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"},
        "value": {"anyOf": [{"type": "string", "maxLength": 50}, {"type": "integer"}, {"$ref": "#/$defs/node"}]},
        "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["name"]}}})x";
std::string tree(Random& random, uint32_t depth) {
  std::string out = "{\"name\": " + quoted(words(random, 2)) + ", \"value\": ";
  out += random.below(3) != 0 || depth == 0 ? choose(random, {"\"text\"", "17", "-4"}) : tree(random, depth - 1);
  if (depth == 0) return out + "}";
  out += ", \"kids\": [";
  for (uint32_t i = random.below(3); i > 0; --i) out += tree(random, depth - 1) + (i > 1 ? ", " : "");
  return out + "], \"more\": " + quoted(words(random, 2)) + "}";
}
std::string tree_document(Random& random) { return tree(random, 4); }

std::string json_value(Random& random, uint32_t depth) {
  const uint32_t kind = random.below(depth == 0 ? 3 : 6);
  if (kind == 0) return number(random);
  if (kind == 1) return choose(random, {"true", "null", "\"\"", "-1.5e+10"});
  if (kind == 2) return quoted(words(random, 5));
  std::string out = kind == 3 ? "[" : "{";
  for (uint32_t i = 1 + random.below(3); i > 0; --i) {
    if (kind != 3) out += "\n  " + quoted(words(random, 1)) + ": ";
    out += json_value(random, depth - 1) + (i > 1 ? ", " : "");
  }
  return out + (kind == 3 ? "]" : "}");
}
std::string json_document(Random& random) { return "[" + json_value(random, 4) + ", " + json_value(random, 4) + "]"; }

constexpr const char kJsonGrammar[] =
    "root ::= object\n"
    "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
    "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)? ws\n"
    "ws ::= [ \\t\\n]*\n";
std::string object_document(Random& random) { return "{\"a\": " + json_value(random, 4) + "}"; }

constexpr const char kProseGrammar[] =
    "root ::= (line \"\\n\")+\nline ::= \"- \" text (\": \" text)? | \"> \" [^\\n]{1,60}\n"
    "text ::= word (\" \" word)*\nword ::= [^ \\n:]+\n";
std::string prose_document(Random& random) {
  std::string out;
  for (int i = 0; i < 6; ++i)
    out += choose(
        random, {"- one two three\n", "- Some name: and a value\n", "> free text, with: all\n", "- caf\xC3\xA9 4.5\n"});
  return out;
}

std::vector<Case> all_cases() {
  return {{"small", WEIR_CONSTRAINT_JSON_SCHEMA, kSmall, small_document},
          {"100 properties", WEIR_CONSTRAINT_JSON_SCHEMA, hundred(true), hundred_document},
          {"100 and others", WEIR_CONSTRAINT_JSON_SCHEMA, hundred(false), open_document},
          {"nested, patterns", WEIR_CONSTRAINT_JSON_SCHEMA, kNested, nested_document},
          {"enum of 303", WEIR_CONSTRAINT_JSON_SCHEMA, enumeration(), enumeration_document},
          {"recursion", WEIR_CONSTRAINT_JSON_SCHEMA, kTree, tree_document},
          {"any JSON", WEIR_CONSTRAINT_JSON, "", json_document},
          {"GBNF of JSON", WEIR_CONSTRAINT_GBNF, kJsonGrammar, object_document},
          {"GBNF of lines", WEIR_CONSTRAINT_GBNF, kProseGrammar, prose_document}};
}

// -------------------------------------------------------------------------------------------------------- measurements

// The tokens of a document: mostly the longest that fit.
std::vector<weir_token> split(const TokenTrie& trie, std::string_view text, Random& random) {
  std::vector<weir_token> out;
  for (size_t at = 0; at < text.size();) {
    std::vector<std::pair<size_t, weir_token>> fits;
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      node = trie.find_below(node, static_cast<uint8_t>(text[i]));
      if (node == 0) break;
      if (!trie.tokens(node).empty()) fits.emplace_back(i + 1 - at, trie.tokens(node)[0]);
    }
    if (fits.empty()) {
      std::fprintf(stderr, "bench_constraint: no token for byte %zu of %s\n", at, std::string(text).c_str());
      std::exit(1);
    }
    const auto& [n, token] =
        fits[random.below(8) == 0 ? random.below(static_cast<uint32_t>(fits.size())) : fits.size() - 1];
    out.push_back(token);
    at += n;
  }
  return out;
}

bool has(const std::vector<uint32_t>& words, weir_token token) {
  return (words[static_cast<size_t>(token) / 32] >> (static_cast<size_t>(token) % 32) & 1) != 0;
}

struct Result {
  double compile_us = 1e12;
  uint64_t bytes = 0, matcher_bytes = 0, n_walks = 0;
  std::vector<double> step_us;
};

void run(const Tokenizer& tokenizer, const TokenTrie& trie, const Case& c,
         const std::vector<std::vector<weir_token>>& documents, Result& result) {
  HostMemory memory({}), of_matcher({});
  const double start = thread_us();
  Constraint constraint(trie, &memory);
  if (!constraint.compile(c.kind, c.text).ok()) {
    std::fprintf(stderr, "%s: %s\n", c.name, last_error_text());
    std::exit(1);
  }
  result.compile_us = std::min(result.compile_us, thread_us() - start);
  Matcher matcher(constraint.grammar(), &of_matcher);
  std::vector<uint32_t> words(trie.n_words());
  size_t n = 0;
  for (const std::vector<weir_token>& document : documents) {
    matcher.reset();
    for (size_t i = 0; i <= document.size(); ++i, ++n) {
      const double before = thread_us();
      if (i != 0) matcher.advance(tokenizer.decode(document[i - 1], false, false));
      constraint.mask(matcher, words.data());
      const double us = thread_us() - before;
      if (result.step_us.size() == n) result.step_us.push_back(us);
      result.step_us[n] = std::min(result.step_us[n], us);
      if (i == document.size() ? matcher.is_complete() : has(words, document[i])) continue;
      std::fprintf(stderr, "%s: token %zu of a document is not allowed\n", c.name, i);
      std::exit(1);
    }
  }
  result.bytes = memory.bytes();
  result.matcher_bytes = of_matcher.bytes();
  result.n_walks = constraint.cache().n_walks();
}

void measure(const char* name, const Opened& opened, const char* only, uint32_t n_documents) {
  if (!opened.status().ok()) {
    std::fprintf(stderr, "%s: %s\n", name, last_error_text());
    std::exit(1);
  }
  HostMemory memory({});
  TokenTrie trie(&memory);
  const double start = thread_us();
  trie.build(*opened);
  const double trie_us = thread_us() - start;
  for (const Case& c : all_cases()) {
    if (only != nullptr && std::string_view(only) != c.name) continue;
    Random random(1);
    std::vector<std::vector<weir_token>> documents;
    for (uint32_t i = 0; i < n_documents; ++i) documents.push_back(split(trie, c.document(random), random));
    Result r;
    for (int i = 0; i < kRuns; ++i) run(*opened, trie, c, documents, r);
    double sum = 0;
    for (const double us : r.step_us) sum += us;
    const size_t n_first = std::min(kFirst, r.step_us.size());
    const double first = *std::max_element(r.step_us.begin(), r.step_us.begin() + static_cast<long>(n_first));
    std::vector<double> later(r.step_us.begin() + static_cast<long>(n_first), r.step_us.end());
    std::sort(later.begin(), later.end());
    const size_t n = r.step_us.size();
    std::printf(
        "{\"vocabulary\": \"%s\", \"tokens\": %u, \"tree_ms\": %.1f, \"tree_mb\": %.2f, \"constraint\": \"%s\", "
        "\"compile_ms\": %.2f, \"steps\": %zu, \"mean_us\": %.1f, \"p99_us\": %.1f, \"max_first_32_us\": %.1f, "
        "\"max_later_us\": %.1f, \"walks\": %llu, \"constraint_mb\": %.2f, \"matcher_mb\": %.2f}\n",
        name, opened->vocab_size(), trie_us / 1e3, static_cast<double>(memory.bytes()) / 1e6, c.name,
        r.compile_us / 1e3, n, sum / static_cast<double>(n), later.empty() ? 0.0 : later[later.size() * 99 / 100],
        first, later.empty() ? 0.0 : later.back(), static_cast<unsigned long long>(r.n_walks),
        static_cast<double>(r.bytes) / 1e6, static_cast<double>(r.matcher_bytes) / 1e6);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files, sizes;
  const char* only = nullptr;
  uint32_t n_documents = 20;
  session_bench::read_flags(
      argc, argv,
      {{'v', nullptr, nullptr, &files}, {'n', nullptr, nullptr, &sizes}, {'c', &only}, {'d', nullptr, &n_documents}});
  if (files.empty() && sizes.empty()) sizes = {"49152", "102400", "151936"};
  for (const std::string& path : files) {
    const size_t slash = path.rfind('/');
    measure(path.c_str() + (slash == std::string::npos ? 0 : slash + 1), Opened(path), only, n_documents);
  }
  for (const std::string& size : sizes)
    measure("made up", Opened(Vocabulary().make(static_cast<uint32_t>(std::stoul(size)))), only, n_documents);
  return 0;
}
