// core: error texts and log lines: one line of UTF-8 whatever is quoted, cut between characters, and published only
// when a public call fails as a whole.
#include <pthread.h>

#include <clocale>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/call.h"
#include "core/callback.h"
#include "core/log.h"
#include "core/named_values.h"
#include "core/plain_text.h"
#include "core/status.h"
#include "core/utf8.h"
#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

std::string plain(std::string_view text, size_t capacity = 256) {
  std::string out(capacity, '#');
  const size_t n = plain_text(text, out.data(), capacity);
  assert_true(n < capacity);
  assert_int_equal(out[n], 0);
  for (size_t i = n + 1; i < capacity; ++i) assert_int_equal(out[i], '#');
  out.resize(n);
  return out;
}

bool is_plain(std::string_view text) {
  if (utf8_valid_prefix(text) != text.size()) return false;
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  return text.find("\xC2\x9B") == text.npos && text.find("\xE2\x80\xA8") == text.npos;
}

void plain_text__escapes_and_replaces(void**) {
  assert_string_equal(plain("").c_str(), "");
  assert_string_equal(plain("blk.0.attn_q \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80").c_str(),
                      "blk.0.attn_q \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  assert_string_equal(plain("\x1b[31m\n\t\r\x7f").c_str(), "\\x1b[31m\\x0a\\x09\\x0d\\x7f");
  assert_string_equal(plain(std::string_view("a\0b", 3)).c_str(), "a\\x00b");
  assert_string_equal(plain("\xC2\x9B"
                            "2J\xE2\x80\xA8\xE2\x80\xA9")
                          .c_str(),
                      "\\u009b2J\\u2028\\u2029");
  assert_string_equal(plain("\xff\xfe").c_str(), "\xEF\xBF\xBD\xEF\xBF\xBD");
  assert_string_equal(plain("\xC3(").c_str(), "\xEF\xBF\xBD(");
  assert_string_equal(plain("\xE2\x82").c_str(), "\xEF\xBF\xBD");  // one for the whole of a cut character
  assert_string_equal(plain("\xED\xA0\x80").c_str(), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  assert_string_equal(plain(plain("\x1b\xff\n")).c_str(), plain("\x1b\xff\n").c_str());
}

void plain_text__cuts_between_characters(void**) {
  const std::string_view text = "a\xC3\xA9\x1b\xE2\x82\xACz";  // shown as a, é, \x1b, €, z: 1, 2, 4, 3, 1 bytes
  const char* const expected[] = {"",
                                  "a",
                                  "a",
                                  "a\xC3\xA9",
                                  "a\xC3\xA9",
                                  "a\xC3\xA9",
                                  "a\xC3\xA9",
                                  "a\xC3\xA9\\x1b",
                                  "a\xC3\xA9\\x1b",
                                  "a\xC3\xA9\\x1b",
                                  "a\xC3\xA9\\x1b\xE2\x82\xAC",
                                  "a\xC3\xA9\\x1b\xE2\x82\xACz"};
  for (size_t room = 0; room < std::size(expected); ++room)
    assert_string_equal(plain(text, room + 1).c_str(), expected[room]);
}

void fail__stores_plain_text(void**) {
  assert_int_equal(fail(WEIR_ERR_FORMAT, "%s: \x1b[0m %d", "\xff\n", 7).code(), WEIR_ERR_FORMAT);
  assert_string_equal(last_error_text(), "\xEF\xBF\xBD\\x0a: \\x1b[0m 7");
  (void)fail(WEIR_ERR_FORMAT, "outer: %s", last_error_text());  // any number of times
  assert_string_equal(last_error_text(), "outer: \xEF\xBF\xBD\\x0a: \\x1b[0m 7");
  // Cut by a precision inside a character, and by the length of the whole at every byte of one.
  (void)fail(WEIR_ERR_NOT_FOUND, "no policy \"%.4s\"", "abc\xE2\x82\xAC");
  assert_string_equal(last_error_text(), "no policy \"abc\xEF\xBF\xBD\"");
  for (size_t n = kErrorBytes - 8; n < kErrorBytes + 4; ++n) {
    const std::string head(n, 'x');
    (void)fail(WEIR_ERR_FORMAT, "%s\xF0\x9F\x98\x80\xE2\x82\xAC", head.c_str());
    const std::string_view text = last_error_text();
    assert_true(text.size() < kErrorBytes && is_plain(text));
    assert_true(text.find("\xEF\xBF\xBD") == text.npos);
    assert_int_equal(text.size(), n + 7 < kErrorBytes   ? n + 7
                                  : n + 4 < kErrorBytes ? n + 4
                                  : n < kErrorBytes     ? n
                                                        : kErrorBytes - 1);
  }
  const std::string hostile(5000, '\x1b');
  (void)fail(WEIR_ERR_FORMAT, "%s", hostile.c_str());
  assert_true(is_plain(last_error_text()) && std::strlen(last_error_text()) < kErrorBytes);
}

weir_status keep_line(void* user, const weir_log_info* info) {
  assert_int_equal(std::strlen(info->message), info->message_bytes);
  *static_cast<std::string*>(user) = info->message;
  return WEIR_OK;
}

void log__lines_are_plain_and_cut_between_characters(void**) {
  std::string line;
  const Log log(keep_line, &line, WEIR_LOG_DEBUG);
  log.write(WEIR_LOG_INFO, "opened %s: \x1b[2J", "a\nb\xff");
  assert_string_equal(line.c_str(), "opened a\\x0ab\xEF\xBF\xBD: \\x1b[2J");
  for (size_t n = 0; n < 4; ++n) {
    std::string path(n, 'x');
    for (int i = 0; i < 400; ++i) path += "\xC3\xA9";
    log.write(WEIR_LOG_INFO, "%s", path.c_str());
    assert_true(is_plain(line) && line.find("\xEF\xBF\xBD") == line.npos);
    assert_int_equal(line.size(), 511 - (511 - n) % 2);
  }
}

void call__tells_an_error_when_it_fails(void**) {
  (void)fail(WEIR_ERR_STATE, "outside of any call");
  assert_string_equal(Call::published_error_text(), "outside of any call");
  {
    const Call call;
    assert_string_equal(last_error_text(), "");
    (void)fail(WEIR_ERR_UNSUPPORTED, "there is no device");
    assert_string_equal(last_error_text(), "there is no device");
    assert_string_equal(Call::published_error_text(), "outside of any call");
  }
  assert_string_equal(Call::published_error_text(), "outside of any call");  // the call itself did not fail
  {
    const Call call;
    (void)fail(WEIR_ERR_UNSUPPORTED, "this counts");
    call.publish_error();
  }
  assert_string_equal(Call::published_error_text(), "this counts");
}

// When a call of a callback fails, its text becomes the thread's last error, not the text of the call around it.
void call__keeps_its_text_through_callbacks(void**) {
  const Call call;
  (void)fail(WEIR_ERR_FORMAT, "the outer failure");
  const Answer answer = call_back([] {
    assert_string_equal(last_error_text(), Call::published_error_text());
    (void)fail(WEIR_ERR_INVALID_ARG, "before a call");
    {
      const Call inner;
      (void)fail(WEIR_ERR_BUSY, "the inner failure");
      inner.publish_error();
    }
    assert_string_equal(last_error_text(), "the inner failure");
    return WEIR_OK;
  });
  assert_true(answer.agreed && !answer.threw);
  assert_string_equal(last_error_text(), "the outer failure");
  assert_string_equal(Call::published_error_text(), "the inner failure");
}

void callback__that_throws_refuses(void**) {
  assert_true(call_back([] { return WEIR_OK; }).agreed);
  const Answer refused = call_back([] { return WEIR_ERR_IO; });
  assert_true(!refused.agreed && !refused.threw);
  assert_string_equal(refused.why(), "");
  const Answer threw = call_back([]() -> weir_status { throw 7; });
  assert_true(!threw.agreed && threw.threw);
  assert_string_equal(threw.why(), ": the callback threw");
}

// A locale whose decimal point is a comma, made where the system has its source; null otherwise.
locale_t comma_locale() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "weir_comma_locale";
  std::filesystem::create_directories(folder);
  const std::string command =
      "localedef --quiet --no-archive -i de_DE -f UTF-8 '" + (folder / "de_DE.UTF-8").string() + "' 2>/dev/null";
  if (std::system(command.c_str()) < 0) return nullptr;
  setenv("LOCPATH", folder.c_str(), 1);
  const locale_t made = newlocale(LC_ALL_MASK, "de_DE.UTF-8", nullptr);
  unsetenv("LOCPATH");
  std::filesystem::remove_all(folder);
  return made;
}

// Numbers are written with a point, whatever the host's locale, which stays what it was.
void numbers__have_a_decimal_point(void**) {
  const locale_t comma = comma_locale();
  if (comma == nullptr) skip();
  const locale_t before = uselocale(comma);
  char text[64];
  std::snprintf(text, sizeof(text), "%g", 0.5);
  const std::string host = text;
  (void)fail(WEIR_ERR_FORMAT, "%g is wrong", 0.25);
  const std::string error = last_error_text();
  std::string line;
  const Log log(keep_line, &line, WEIR_LOG_INFO);
  log.write(WEIR_LOG_INFO, "%.1f s", 2.5);
  NamedValues values;
  values.add("rho", "%.9g", 0.75);
  const bool is_kept = uselocale(nullptr) == comma;
  uselocale(before);
  freelocale(comma);
  assert_string_equal(host.c_str(), "0,5");
  assert_string_equal(error.c_str(), "0.25 is wrong");
  assert_string_equal(line.c_str(), "2.5 s");
  assert_string_equal(std::string(values.text()).c_str(), "rho=0.75\n");
  assert_true(is_kept);
}

void* put_address(void* out) {
  *static_cast<const void**>(out) = this_thread();
  return nullptr;
}

void this_thread__differs_from_others(void**) {
  const void* other = nullptr;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, put_address, &other), 0);
  assert_int_equal(pthread_join(thread, nullptr), 0);
  assert_ptr_not_equal(this_thread(), other);
  assert_ptr_equal(this_thread(), this_thread());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(plain_text__escapes_and_replaces),
      cmocka_unit_test(plain_text__cuts_between_characters),
      cmocka_unit_test(fail__stores_plain_text),
      cmocka_unit_test(log__lines_are_plain_and_cut_between_characters),
      cmocka_unit_test(call__tells_an_error_when_it_fails),
      cmocka_unit_test(call__keeps_its_text_through_callbacks),
      cmocka_unit_test(callback__that_throws_refuses),
      cmocka_unit_test(numbers__have_a_decimal_point),
      cmocka_unit_test(this_thread__differs_from_others),
  };
  return cmocka_run_group_tests_name("core_status", tests, nullptr, nullptr);
}
