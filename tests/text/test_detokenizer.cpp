// text: Detokenizer streams whole UTF-8 only, whatever way the bytes are cut, and allocates nothing.
#include "core/utf8.h"
#include "tests/text/text_test.h"

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

// One byte a token: ids 0..255 of the vocabulary are the bytes.
std::string stream(const Tokenizer& tokenizer, std::string_view bytes, std::vector<std::string>* pieces = nullptr) {
  Detokenizer detokenizer;
  detokenizer.reset(&tokenizer, false);
  std::string out;
  const auto take = [&](std::string_view piece) {
    assert_int_equal(piece.data()[piece.size()], 0);
    assert_int_equal(utf8_valid_prefix(piece), piece.size());
    if (pieces != nullptr) pieces->emplace_back(piece);
    out += piece;
  };
  for (const char c : bytes) take(detokenizer.push(static_cast<uint8_t>(c)));
  take(detokenizer.flush());
  return out;
}

void detokenizer__cut_characters_come_whole(void**) {
  const Opened t(byte_level_parts().file());
  std::vector<std::string> pieces;
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  assert_string_equal(stream(*t, text, &pieces).c_str(), text.c_str());
  const std::vector<std::string> wanted = {"a", "", "\xC3\xA9",         "",  "", "\xE2\x82\xAC", "",
                                           "",  "", "\xF0\x9F\x98\x80", "z", ""};
  assert_true(pieces == wanted);
}

void detokenizer__ill_formed_bytes_are_replaced(void**) {
  const Opened t(byte_level_parts().file());
  const char* const cases[][2] = {
      {"\x80", "\xEF\xBF\xBD"},
      {"a\xFFz", "a\xEF\xBF\xBDz"},
      {"\xC3z", "\xEF\xBF\xBDz"},
      {"\xC3", "\xEF\xBF\xBD"},          // cut off at the end
      {"\xF0\x9F\x98", "\xEF\xBF\xBD"},  // one for all that could have been one character
      {"\xF0\x9F\x98z", "\xEF\xBF\xBDz"},
      {"\xE2\x82\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9"},                              // a new character begins inside
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // a surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // beyond the last code point
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\x41"},
  };
  for (const auto& c : cases) assert_string_equal(stream(*t, c[0]).c_str(), c[1]);
}

// Cutting the same bytes into tokens of other lengths gives the same text.
void detokenizer__does_not_depend_on_the_cuts(void**) {
  VocabParts parts = byte_level_parts();
  Random random(3);
  std::vector<std::string> spelled;
  for (int i = 0; i < 300; ++i) {
    spelled.push_back(random.bytes(1 + random.below(6)));
    std::string text;
    for (const char c : spelled.back()) text += byte_letter(static_cast<uint8_t>(c));
    parts.add(text);
  }
  const Opened t(parts.file());
  assert_true(t.status().ok());
  for (int round = 0; round < 50; ++round) {
    Detokenizer detokenizer;
    detokenizer.reset(&*t, false);
    std::string bytes, text;
    for (int i = 0; i < 20; ++i) {
      const uint32_t k = random.below(static_cast<uint32_t>(spelled.size()));
      bytes += spelled[k];
      text += detokenizer.push(static_cast<weir_token>(264 + k));
    }
    text += detokenizer.flush();
    assert_string_equal(text.c_str(), stream(*t, bytes).c_str());
  }
}

void detokenizer__control_tokens(void**) {
  const Opened t(byte_level_parts().file());
  Detokenizer detokenizer;
  detokenizer.reset(&*t, false);
  assert_int_equal(detokenizer.push(261).size(), 0);
  assert_string_equal(std::string(detokenizer.push(262)).c_str(), "<tool>");
  detokenizer.reset(&*t, true);
  assert_int_equal(detokenizer.push(0xC3).size(), 0);
  assert_string_equal(std::string(detokenizer.push(261)).c_str(), "\xEF\xBF\xBD<|im_end|>");
  assert_int_equal(detokenizer.push(0xC3).size(), 0);
  detokenizer.reset(&*t, true);  // what was held is forgotten
  assert_string_equal(std::string(detokenizer.push('a')).c_str(), "a");
}

void detokenizer__sentencepiece_spaces(void**) {
  const Opened t(spm_parts().file());
  Detokenizer detokenizer;
  detokenizer.reset(&*t, false);
  assert_string_equal(std::string(detokenizer.push(259)).c_str(), "a");
  assert_string_equal(std::string(detokenizer.push(259)).c_str(), " a");
  assert_string_equal(std::string(detokenizer.push(268)).c_str(), "<tool>");
  assert_string_equal(std::string(detokenizer.push(259)).c_str(), "a");
  detokenizer.flush();
  assert_string_equal(std::string(detokenizer.push(259)).c_str(), "a");
  detokenizer.reset(&*t, false, false);  // goes on with a text
  assert_string_equal(std::string(detokenizer.push(259)).c_str(), " a");
}

// The longest token, and the worst text: every byte of it is replaced.
void detokenizer__longest_token(void**) {
  VocabParts parts = spm_parts();
  parts.add(std::string(kMaxTokenBytes, '\xFF'));
  const Opened t(parts.file());
  assert_true(t.status().ok());
  Detokenizer detokenizer;
  detokenizer.reset(&*t, false);
  for (const int byte : {0xF0, 0x9F, 0x98}) assert_int_equal(detokenizer.push(3 + byte).size(), 0);
  const uint64_t allocs = HostMemory::thread_allocs();
  assert_int_equal(detokenizer.push(269).size(), 3 * (1 + kMaxTokenBytes));
  assert_int_equal(detokenizer.flush().size(), 0);
  assert_int_equal(HostMemory::thread_allocs(), allocs);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(detokenizer__cut_characters_come_whole),
      cmocka_unit_test(detokenizer__ill_formed_bytes_are_replaced),
      cmocka_unit_test(detokenizer__does_not_depend_on_the_cuts),
      cmocka_unit_test(detokenizer__control_tokens),
      cmocka_unit_test(detokenizer__sentencepiece_spaces),
      cmocka_unit_test(detokenizer__longest_token),
  };
  return cmocka_run_group_tests_name("text/detokenizer", tests, nullptr, nullptr);
}
