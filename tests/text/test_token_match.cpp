// text: which tokens of a conversation can stay when it is to have others: those of the same text, however it was cut,
// and no mark that only reads the same.
#include "text/token_match.h"

#include <random>

#include "tests/cmocka_cpp.h"
#include "tests/text/text_test.h"

using namespace weir;
using namespace weir_test;

namespace {

constexpr weir_token kEnd = 261, kTool = 262;

// One token for each byte.
Ids bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), reinterpret_cast<const uint8_t*>(text.data()) + text.size()};
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::pmr::vector<weir_token> out;
  assert_true(tokenizer.encode(text, 0, out).ok());
  return {out.begin(), out.end()};
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void assert_match(const Tokenizer& tokenizer, const Ids& held, const Ids& wanted, size_t n_held, size_t n_wanted) {
  const TokenMatch match = match_tokens(tokenizer, held, wanted);
  assert_int_equal(match.n_held, n_held);
  assert_int_equal(match.n_wanted, n_wanted);
}

void match__the_same_text_cut_otherwise(void**) {
  const Opened v(byte_level_parts().file());
  const Ids word = encoded(*v, " hello"), letters = bytes_of(" hello");
  assert_int_equal(word.size(), 1);
  assert_match(*v, letters, word, 6, 1);
  assert_match(*v, word, letters, 1, 6);
  assert_match(*v, joined({{kEnd}, letters, {kEnd}}), joined({{kEnd}, word, {kEnd}, {'x'}}), 8, 3);
  // What ends inside a token of the other is not the same up to there.
  assert_match(*v, bytes_of(" hell"), word, 0, 0);
  assert_match(*v, joined({letters, {'x'}}), joined({word, {'y'}}), 6, 1);
  assert_match(*v, {}, word, 0, 0);
  assert_match(*v, word, {}, 0, 0);
}

// Any cuts of a text match in all of it, and where it is changed up to a border before the change.
void match__random_cuts(void**) {
  const Opened v(byte_level_parts().file());
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    std::string text;
    for (int i = 0; i < 12; ++i)
      text += random() % 3 != 0 ? " hello" : std::string(1, static_cast<char>('a' + random() % 9));
    Ids held, borders;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 9;
      const Ids part = encoded(*v, text.substr(at, n));
      held.insert(held.end(), part.begin(), part.end());
      at += n;
    }
    const Ids wanted = encoded(*v, text);
    assert_match(*v, held, wanted, held.size(), wanted.size());
    const size_t changed = random() % text.size();
    std::string other = text;
    other[changed] = '#';
    const TokenMatch match = match_tokens(*v, held, encoded(*v, other));
    std::string kept;
    for (uint32_t i = 0; i < match.n_held; ++i) kept += v->decode(held[i], false, i == 0);
    assert_true(kept.size() <= changed && other.compare(0, kept.size(), kept) == 0);
  }
}

// A token that the model's makers added marks turns in some models. Its letters are not the mark.
void match__marks_equal_only_themselves(void**) {
  const Opened v(byte_level_parts().file());
  for (const weir_token mark : {kEnd, kTool}) {
    const Ids spelled = bytes_of(v->decode(mark, true, false));
    assert_true(spelled.size() > 4);
    const Ids real = joined({{'a'}, {mark}, {'b'}}), text = joined({{'a'}, spelled, {'b'}});
    assert_match(*v, real, text, 1, 1);
    assert_match(*v, text, real, 1, 1);
    assert_match(*v, real, real, 3, 3);
    assert_match(*v, text, text, text.size(), text.size());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(match__the_same_text_cut_otherwise),
      cmocka_unit_test(match__random_cuts),
      cmocka_unit_test(match__marks_equal_only_themselves),
  };
  return cmocka_run_group_tests_name("text/token_match", tests, nullptr, nullptr);
}
