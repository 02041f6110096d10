// text: stop strings, found whatever way the text is cut, and never shown; what is no stop string is shown whole.
#include "text/stop_strings.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/utf8.h"
#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

using Strings = std::vector<std::string>;

std::vector<std::string_view> views(const Strings& strings) { return {strings.begin(), strings.end()}; }

struct Result {
  std::string shown;
  int32_t found = -1;
  bool operator==(const Result&) const = default;
};

// What pieces of text show before a stop string, or in all.
Result show(const Strings& stops, const Strings& pieces, size_t* max_held = nullptr) {
  StopStrings strings;
  strings.begin(views(stops));
  Result r;
  for (const std::string& piece : pieces) {
    const StopStrings::Piece p = strings.push(piece);
    assert_int_equal(p.text.data()[p.text.size()], 0);
    assert_int_equal(utf8_valid_prefix(p.text), p.text.size());
    r.shown += p.text;
    r.found = p.found;
    if (p.found >= 0) return r;
    if (max_held != nullptr) *max_held = std::max<size_t>(*max_held, strings.n_held());
  }
  r.shown += strings.finish("");
  return r;
}

// The rule itself, of a whole text: the stop string that is complete first, of those the longest, then the first.
Result rule(const Strings& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Result best;
    size_t n_best = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t n = stops[i].size();
      if (n > end || n <= n_best || text.compare(end - n, n, stops[i]) != 0) continue;
      n_best = n;
      best = {text.substr(0, end - n), static_cast<int32_t>(i)};
    }
    if (n_best != 0) return best;
  }
  return {text, -1};
}

// Cuts between characters, as a detokenizer does.
Strings cut(const std::string& text, std::mt19937& random) {
  Strings pieces;
  for (size_t at = 0; at < text.size();) {
    size_t n = 1 + random() % 5;
    while (at + n < text.size() && (text[at + n] & 0xC0) == 0x80) ++n;
    pieces.push_back(text.substr(at, n));
    at += n;
    if (random() % 8 == 0) pieces.emplace_back();  // tokens without text
  }
  return pieces;
}

void stops__over_the_borders_of_pieces(void**) {
  const Strings stops = {"STOP", "\n\n"};
  assert_true(show(stops, {"a ST", "O", "P b"}) == (Result{"a ", 0}));
  assert_true(show(stops, {"a ST", "O", "K b"}) == (Result{"a STOK b", -1}));
  assert_true(show(stops, {"line\n", "", "\nnext"}) == (Result{"line", 1}));
  assert_true(show(stops, {"ends with S"}) == (Result{"ends with S", -1}));
  assert_true(show({}, {"STOP"}) == (Result{"STOP", -1}));
  assert_true(show({"\xF0\x9F\x98\x80!"}, {"hi \xF0\x9F\x98\x80", "?", "\xF0\x9F\x98\x80", "!"}) ==
              (Result{"hi \xF0\x9F\x98\x80?", 0}));
}

void stops__the_first_that_is_complete(void**) {
  assert_true(show({"abc", "b"}, {"xabc"}) == (Result{"xa", 1}));
  assert_true(show({"c", "abc"}, {"xabc"}) == (Result{"x", 1}));
  assert_true(show({"abc", "abc"}, {"xabc"}) == (Result{"x", 0}));
  // A beginning that comes to nothing hides no other: "aab" is in "aaab".
  assert_true(show({"aab"}, {"a", "a", "a", "b"}) == (Result{"a", 0}));
}

// Follows random texts over few letters, so that beginnings overlap; also sixteen that are ends, or beginnings, of each
// other.
void stops__follow_the_rule(void**) {
  std::mt19937 random(5);
  const char* const letters[] = {"a", "b", "\n", "\xC3\xA9"};
  size_t n_found = 0, max_held = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const auto word = [&](size_t most) {
      std::string out;
      for (size_t n = 1 + random() % most; n > 0; --n) out += letters[random() % std::size(letters)];
      return out;
    };
    Strings stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(6));
    std::string text = word(60);
    if (trial % 7 == 0) {
      stops.clear();
      for (size_t n = StopStrings::kMax; n > 0; --n) stops.push_back(std::string(2 * n, 'a') + "b");
      text = word(30) + std::string(random() % 40, 'a') + word(30);
    }
    if (trial % 7 == 1) {  // beginnings of one word: the shortest is complete first
      std::string one = letters[random() % 2];
      while (one.size() < StopStrings::kMax + 3) one += letters[random() % 2];
      stops.clear();
      for (size_t n = StopStrings::kMax; n > 0; --n) stops.push_back(one.substr(0, n + 3));
      std::shuffle(stops.begin(), stops.end(), random);
      text = word(30) + one + word(30);
    }
    const Result want = rule(stops, text), got = show(stops, cut(text, random), &max_held);
    if (!(got == want))
      fail_msg("trial %d: \"%s\" and %d, not \"%s\" and %d", trial, got.shown.c_str(), got.found, want.shown.c_str(),
               want.found);
    n_found += want.found >= 0;
  }
  assert_true(n_found > 1000 && n_found < 3900);
  assert_true(max_held > 8);
}

void stops__of_the_greatest_sizes(void**) {
  const Strings stops = {std::string(StopStrings::kMaxBytes, 'x')};
  const std::string almost(StopStrings::kMaxBytes - 1, 'x');
  assert_true(show(stops, {almost, "y"}) == (Result{almost + "y", -1}));
  assert_true(show(stops, {almost, "x"}) == (Result{"", 0}));
  const std::string piece(Detokenizer::kMaxBytes, 'x');
  assert_true(show({"y"}, {piece, piece}) == (Result{piece + piece, -1}));
  assert_true(show({almost + "y"}, {almost, std::string(Detokenizer::kMaxBytes, 'z')}).shown.size() ==
              almost.size() + Detokenizer::kMaxBytes);
}

void stops__can_be_taken_back(void**) {
  StopStrings strings;
  strings.begin(views({"abc"}));
  assert_true(strings.push("xa").text == "x");
  strings.mark();
  assert_true(strings.push("b").text.empty());
  strings.take_back(0);
  assert_true(strings.push("d").text == "ad");
  assert_true(strings.finish("!") == "!");
  // Nothing comes back of what has been shown since the mark, and nothing stays of what the piece itself left.
  strings.begin(views({"abab#"}));
  assert_true(strings.push("xaba").text == "x");
  strings.mark();
  assert_true(strings.push("ba").text == "ab");  // of "ababa"
  strings.take_back(2);
  assert_true(strings.finish("") == "a");
  assert_true(strings.push("ab").text.empty());
  strings.mark();
  assert_true(strings.push("yab").text == "aby");
  strings.take_back(3);
  assert_true(strings.finish("") == "");
}

void stops__that_cannot_be_used(void**) {
  const auto refused = [](const Strings& stops, const char* why) {
    const std::vector<std::string_view> all = views(stops);
    const Status status = StopStrings::check(all);
    assert_int_equal(status.code(), WEIR_ERR_INVALID_ARG);
    assert_non_null(std::strstr(last_error_text(), why));
  };
  refused({"a", ""}, "stop[1] is empty");
  refused({std::string(257, 'a')}, "stop[0] has 257 bytes");
  refused({"a", "\xC3"}, "stop[1] is not UTF-8");
  refused(Strings(17, "a"), "17 stop strings");
  const std::string longest(256, 'a');
  assert_true(StopStrings::check(views({longest})).ok());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(stops__over_the_borders_of_pieces),
      cmocka_unit_test(stops__the_first_that_is_complete),
      cmocka_unit_test(stops__follow_the_rule),
      cmocka_unit_test(stops__of_the_greatest_sizes),
      cmocka_unit_test(stops__can_be_taken_back),
      cmocka_unit_test(stops__that_cannot_be_used),
  };
  return cmocka_run_group_tests_name("text/stop_strings", tests, nullptr, nullptr);
}
