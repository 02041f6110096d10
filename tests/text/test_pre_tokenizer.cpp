// text: how pre-tokenizers split. The expected pieces follow from the models' published expressions.
#include "tests/text/text_test.h"
#include "text/pre_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;
using namespace weir_test;

namespace {

#define WEIR_PRE_PATTERNS(List, ...)
#define WEIR_PRE_TOKENIZER(name, List, flags) name,
constexpr const char* kNames[] = {
#include "text/pre_tokenizers.inc"
};
#undef WEIR_PRE_PATTERNS
#undef WEIR_PRE_TOKENIZER

std::vector<std::string> split(const char* name, std::string_view text) {
  PreTokenizer pre;
  if (!pre.build(name, std::pmr::get_default_resource()).ok()) fail_msg("%s: %s", name, last_error_text());
  PreSplitter splitter(pre, std::pmr::get_default_resource());
  std::vector<std::string> pieces;
  const auto take = [](void* out, std::string_view piece) {
    static_cast<std::vector<std::string>*>(out)->emplace_back(piece);
    return Status();
  };
  assert_true(splitter.split(text, take, &pieces).ok());
  return pieces;
}

struct Case {
  const char* name;
  const char* text;
  std::vector<std::string> pieces;
};

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::vector<std::string> pieces = split(c.name, c.text);
    std::string shown;
    for (const std::string& piece : pieces) shown += "[" + piece + "]";
    if (pieces != c.pieces) fail_msg("%s: \"%s\" is split into %s", c.name, c.text, shown.c_str());
  }
}

void pre_tokenizer__words_and_contractions(void**) {
  check({
      {"gpt-2", "I've 'VE y'all", {"I", "'ve", " '", "VE", " y", "'", "all"}},
      {"llama-bpe", "I've 'VE y'all", {"I", "'ve", " '", "VE", " y", "'all"}},
      {"llama-bpe", "we'LL don'T", {"we", "'LL", " don", "'T"}},
      {"qwen2", "we'LL (a.b)", {"we", "'LL", " (", "a", ".b", ")"}},
      {"gpt-4o", "HelloWorld we'll I'VE", {"Hello", "World", " we'll", " I'VE"}},
      {"tekken", "HelloWorld we'll", {"Hello", "World", " we", "'ll"}},
      {"deepseek-v3", "a_b don't", {"a", "_b", " don", "'t"}},
      {"deepseek-llm", "ab, \xE4\xB8\xAD\xE6\x96\x87x", {"ab", ",", " ", "\xE4\xB8\xAD\xE6\x96\x87", "x"}},
      {"deepseek-coder", "ab, \xE4\xB8\xAD\xE6\x96\x87x", {"ab", ",", " ", "\xE4\xB8\xAD\xE6\x96\x87", "x"}},
      {"poro-chat", "a b. c", {"a", " b", ".", " c"}},
  });
}

void pre_tokenizer__digits(void**) {
  check({
      {"gpt-2", "x 12345", {"x", " 12345"}},
      {"llama-bpe", "x 12345", {"x", " ", "123", "45"}},
      {"qwen2", "x 123", {"x", " ", "1", "2", "3"}},
      {"starcoder", "x 12", {"x", " ", "1", "2"}},
      {"refact", "12", {"1", "2"}},
      {"command-r", "12", {"1", "2"}},
      {"smollm", "12", {"1", "2"}},
      {"mpt", "12345", {"12345"}},
      {"falcon", "12345", {"123", "45"}},
      {"deepseek-coder", "a12", {"a", "1", "2"}},
      {"deepseek-r1-qwen", "12", {"1", "2"}},
      {"deepseek-v3", "12345", {"123", "45"}},
      {"default", "a 12345", {"a", " ", "123", "45"}},
      {"viking", "a 12", {"a", " ", "1", "2"}},
  });
}

void pre_tokenizer__white_space(void**) {
  check({
      {"gpt-2", "a   b", {"a", "  ", " b"}},
      {"gpt-2", "a\n\nb  ", {"a", "\n", "\n", "b", "  "}},
      {"gpt-2",
       "a\xC2\xA0\xC2\xA0"
       "b",
       {"a", "\xC2\xA0", "\xC2\xA0", "b"}},
      {"llama-bpe", "a   b", {"a", "  ", " b"}},
      {"llama-bpe", "a  \n \nb  ", {"a", "  \n \n", "b", "  "}},
      {"llama-bpe", "a!\n\nb", {"a", "!\n\n", "b"}},
      {"deepseek-llm", "a\n b  ", {"a", "\n", " b", "  "}},
      {"deepseek-v3", "a  \nb", {"a", "  \n", "b"}},
      // U+180E is not white space.
      {"gpt-2",
       "a\xE1\xA0\x8E"
       "b",
       {"a", "\xE1\xA0\x8E", "b"}},
  });
}

void pre_tokenizer__punctuation(void**) {
  check({
      {"falcon", "a =b`", {"a", " ", "=", "b", "`"}},
      {"default", "a =b`", {"a", " ", "=", "b", "`"}},
      {"gpt-2", " ?! x", {" ?!", " x"}},
      {"llama-bpe", " ?!x", {" ?!", "x"}},
      {"llama-bpe", "(x", {"(x"}},
      {"gpt-4o", "a//\n", {"a", "//\n"}},
  });
}

// Bytes that are no UTF-8 count as one control character each, and pieces are cut from the text itself.
void pre_tokenizer__invalid_utf8(void**) {
  check({
      {"gpt-2", "a\xFF\xFE b", {"a", "\xFF\xFE", " b"}},
      {"gpt-2", "\xC3", {"\xC3"}},
      {"gpt-2", "a \xE2\x82 b", {"a", " \xE2\x82", " b"}},
      {"llama-bpe", "\xFFok", {"\xFFok"}},
  });
}

void pre_tokenizer__pieces_are_the_text(void**) {
  Random random(4);
  for (const char* name : kNames) {
    for (int i = 0; i < 40; ++i) {
      const std::string text = i % 2 == 0 ? random.text(random.below(40)) : random.bytes(random.below(80));
      std::string joined;
      for (const std::string& piece : split(name, text)) {
        assert_false(piece.empty());
        joined += piece;
      }
      assert_true(joined == text);
    }
  }
}

void pre_tokenizer__names(void**) {
  PreTokenizer pre;
  assert_true(pre.build("", std::pmr::get_default_resource()).ok());
  assert_string_equal(pre.name(), "default");
  for (const char* name :
       {"gpt-2", "llama-bpe", "llama3", "llama-v3", "qwen2", "deepseek-llm", "deepseek-coder", "deepseek-r1-qwen",
        "falcon", "starcoder", "refact", "command-r", "mpt", "smollm", "default"}) {
    PreTokenizer named;
    assert_true(named.build(name, std::pmr::get_default_resource()).ok());
    assert_string_equal(named.name(), name);
  }
  PreTokenizer unknown;
  assert_int_equal(unknown.build("gpt2", std::pmr::get_default_resource()).code(), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(last_error_text(), "\"gpt2\""));
}

// A status that a piece's receiver gives ends the walk.
void pre_tokenizer__receiver_can_stop(void**) {
  PreTokenizer pre;
  assert_true(pre.build("qwen2", std::pmr::get_default_resource()).ok());
  PreSplitter splitter(pre, std::pmr::get_default_resource());
  int n = 0;
  const auto stop_at_two = [](void* count, std::string_view) {
    return ++*static_cast<int*>(count) == 2 ? Status(WEIR_ERR_CANCELLED) : Status();
  };
  assert_int_equal(splitter.split("a b c d", stop_at_two, &n).code(), WEIR_ERR_CANCELLED);
  assert_int_equal(n, 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pre_tokenizer__words_and_contractions),
      cmocka_unit_test(pre_tokenizer__digits),
      cmocka_unit_test(pre_tokenizer__white_space),
      cmocka_unit_test(pre_tokenizer__punctuation),
      cmocka_unit_test(pre_tokenizer__invalid_utf8),
      cmocka_unit_test(pre_tokenizer__pieces_are_the_text),
      cmocka_unit_test(pre_tokenizer__names),
      cmocka_unit_test(pre_tokenizer__receiver_can_stop),
  };
  return cmocka_run_group_tests_name("text/pre_tokenizer", tests, nullptr, nullptr);
}
