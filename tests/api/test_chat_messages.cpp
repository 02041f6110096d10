// api: how the library reads messages of callers that were compiled with another version's weir_chat_message. Older
// callers are played by a later version of the struct.
#include "api/chat_messages.h"

#include <cstring>

#include "tests/chat_message.h"
#include "tests/cmocka_cpp.h"

using namespace weir;

namespace {

// What weir_chat_message may become.
struct LaterMessage {
  weir_chat_message first;
  const char* name;
  uint64_t flags;
};

using LaterList = std::pmr::vector<LaterMessage>;

constexpr weir_chat_message kMessages[] = {weir_test::chat_message("system", "Be brief."),
                                           weir_test::chat_message("user", "Hello"),
                                           weir_test::chat_message("assistant", "Hi")};

void assert_same(const weir_chat_message& a, const weir_chat_message& b) {
  assert_ptr_equal(a.role, b.role);
  assert_ptr_equal(a.content, b.content);
  assert_int_equal(a.content_bytes, b.content_bytes);
}

// Programs of 1.0 say 24 or 0, or call weir_chat_render, which cannot say. A larger library reads them alike.
void chat_messages__of_version_1_0(void**) {
  std::vector<unsigned char> packed;  // as 1.0 lays them out
  for (const weir_chat_message& message : kMessages) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&message);
    packed.insert(packed.end(), bytes, bytes + 24);
  }
  for (const uint32_t stride : {0u, 24u}) {
    LaterList later(5, LaterMessage{{}, "old", 7});
    assert_true(api::read_messages(packed.data(), 3, stride, later).ok());
    assert_int_equal(later.size(), 3);
    for (size_t i = 0; i < 3; ++i) {
      assert_same(later[i].first, kMessages[i]);
      assert_true(later[i].name == nullptr && later[i].flags == 0);
    }
    std::pmr::vector<weir_chat_message> now;
    assert_true(api::read_messages(packed.data(), 3, stride, now).ok());
    for (size_t i = 0; i < 3; ++i) assert_same(now[i], kMessages[i]);
  }
}

// A caller whose struct ends between 1.0's and the library's.
void chat_messages__of_a_version_between(void**) {
  struct Between {
    weir_chat_message first;
    const char* name;
  };
  const Between messages[] = {{kMessages[0], "a"}, {kMessages[1], "b"}};
  LaterList later;
  assert_true(api::read_messages(messages, 2, sizeof(Between), later).ok());
  for (size_t i = 0; i < 2; ++i) {
    assert_same(later[i].first, kMessages[i]);
    assert_ptr_equal(later[i].name, messages[i].name);
    assert_int_equal(later[i].flags, 0);
  }
}

// A caller with more fields than the library knows: they must be 0.
void chat_messages__of_a_later_version(void**) {
  LaterMessage messages[] = {{kMessages[0], nullptr, 0}, {kMessages[1], nullptr, 0}};
  std::pmr::vector<weir_chat_message> now;
  assert_true(api::read_messages(messages, 2, sizeof(LaterMessage), now).ok());
  for (size_t i = 0; i < 2; ++i) assert_same(now[i], kMessages[i]);
  messages[1].flags = 1;
  assert_int_equal(api::read_messages(messages, 2, sizeof(LaterMessage), now).code(), WEIR_ERR_UNSUPPORTED);
  assert_non_null(std::strstr(last_error_text(), "messages[1]: byte"));
  for (const uint32_t stride : {1u, 16u, 23u, 25u, 28u, 4104u, UINT32_MAX}) {
    assert_int_equal(api::read_messages(messages, 2, stride, now).code(), WEIR_ERR_INVALID_ARG);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(chat_messages__of_version_1_0),
      cmocka_unit_test(chat_messages__of_a_version_between),
      cmocka_unit_test(chat_messages__of_a_later_version),
  };
  return cmocka_run_group_tests_name("api/chat_messages", tests, nullptr, nullptr);
}
