// cli: terminal and options. Mirrors tools/weir/terminal.cpp and the text helpers of options.cpp.
#include <string>

#include "tools/weir/options.h"
#include "tools/weir/terminal.h"

// After the standard headers: cmocka makes `fail` a macro.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir_cli;

namespace {

void terminal__width_counts_columns_not_bytes(void**) {
  assert_int_equal(display_width("abc"), 3);
  assert_int_equal(display_width("gr\xc3\xbcn"), 4);               // u with diaeresis, two bytes
  assert_int_equal(display_width("u\xcc\x88"), 1);                 // the same as a combining mark
  assert_int_equal(display_width("\xe6\xbc\xa2\xe5\xad\x97"), 4);  // two wide characters
  assert_int_equal(display_width("\xf0\x9f\x99\x82"), 2);
}

void terminal__cut_never_splits_a_character(void**) {
  assert_string_equal(cut_to_width("abcdef", 3).c_str(), "abc");
  assert_string_equal(cut_to_width("abc", 80).c_str(), "abc");
  assert_string_equal(cut_to_width("a\xe6\xbc\xa2\xe5\xad\x97", 4).c_str(),
                      "a\xe6\xbc\xa2");                             // half of the last would stick out
  assert_string_equal(cut_to_width("\x80xy", 2).c_str(), "\x80x");  // a stray byte counts as a column
  assert_string_equal(cut_to_width("anything", 0).c_str(), "");
}

void terminal__cut_keeps_styles(void**) {
  assert_string_equal(cut_styled("ab\x1b[31mcd\x1b[0mef", 3).c_str(), "ab\x1b[31mc\x1b[0m");
  assert_string_equal(cut_styled("\x1b[1mgr\xc3\xbcn\x1b[0m", 3).c_str(), "\x1b[1mgr\xc3\xbc\x1b[0m");
  assert_string_equal(cut_styled("ab\x1b[3", 1).c_str(), "a\x1b[3");  // one without an end
}

void terminal__bar_is_full_at_one_and_clamped(void**) {
  assert_true(bar(1.0, 5) == bar(7.0, 5));
  assert_true(bar(0.0, 5) == bar(-1.0, 5));
  assert_true(bar(0.5, 10) != bar(0.6, 10));
  assert_int_equal(display_width(bar(0.3, 10)), 10);
}

void terminal__throttle_lets_the_first_one_through(void**) {
  Throttle throttle(0.001);
  assert_true(throttle.due());
  assert_false(throttle.due());
}

void options__numbers_as_text(void**) {
  assert_string_equal(grouped(0).c_str(), "0");
  assert_string_equal(grouped(999).c_str(), "999");
  assert_string_equal(grouped(1000).c_str(), "1,000");
  assert_string_equal(grouped(1234567).c_str(), "1,234,567");
  assert_string_equal(human_bytes(1023).c_str(), "1023 B");
  assert_string_equal(human_bytes(1024).c_str(), "1.0 KiB");
  assert_string_equal(human_bytes((1u << 20) - 1).c_str(), "1.0 MiB");  // never "1024.0 KiB"
  assert_string_equal(human_bytes(4ull << 30).c_str(), "4.0 GiB");
}

void options__policy_options_reach_the_library(void**) {
  SessionFlags flags;
  flags.policy = "raas";
  flags.policy_options = {"overflow=extend", "note=a=b"};
  flags.budget = 512;
  SessionOptions options(flags);
  assert_int_equal(options.get().n_policy_options, 2);
  assert_string_equal(options.get().policy_options[1].key, "note");
  assert_string_equal(options.get().policy_options[1].value, "a=b");
  assert_int_equal(options.get().budget_tokens, 512);
  assert_true(flags.extends_for_prompt());
  flags.policy_options.push_back("overflow=error");  // the last one counts
  assert_false(flags.extends_for_prompt());
  for (const char* wrong : {"overflow", "=extend", ""}) {
    flags.policy_options = {wrong};
    bool refused = false;
    try {
      SessionOptions unused(flags);
    } catch (const UsageError&) {
      refused = true;
    }
    assert_true(refused);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(terminal__width_counts_columns_not_bytes),
      cmocka_unit_test(terminal__cut_never_splits_a_character),
      cmocka_unit_test(terminal__cut_keeps_styles),
      cmocka_unit_test(terminal__bar_is_full_at_one_and_clamped),
      cmocka_unit_test(terminal__throttle_lets_the_first_one_through),
      cmocka_unit_test(options__numbers_as_text),
      cmocka_unit_test(options__policy_options_reach_the_library),
  };
  return cmocka_run_group_tests_name("terminal", tests, nullptr, nullptr);
}
