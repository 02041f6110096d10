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

// Messages as an older version lays them out: the first bytes of each.
std::vector<unsigned char> packed_messages(size_t bytes) {
  std::vector<unsigned char> packed;
  for (const weir_chat_message& message : kMessages) {
    const auto* first = reinterpret_cast<const unsigned char*>(&message);
    packed.insert(packed.end(), first, first + bytes);
  }
  return packed;
}

// Programs of 1.0 say 24 or 0, or call weir_chat_render, which cannot say. A larger library reads them alike.
void chat_messages__of_version_1_0(void**) {
  const std::vector<unsigned char> packed = packed_messages(24);
  weir_chat_options options{};
  options.struct_size = 40;
  for (const uint32_t stride : {24u, api::unsaid_message_bytes(nullptr), api::unsaid_message_bytes(&options)}) {
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

// Programs of 1.1 may give weir_session_prompt no chat options, or such with message_bytes 0. In a library whose struct
// has grown since, their messages are as far apart as they were.
void chat_messages__of_version_1_1(void**) {
  const std::vector<unsigned char> packed = packed_messages(64);
  for (const uint32_t bytes : {64u, 4096u}) {  // sizeof the options of 1.1, and of a later version
    weir_chat_options options{};
    options.struct_size = bytes;
    assert_int_equal(api::unsaid_message_bytes(&options), 64);
  }
  LaterList later(5, LaterMessage{{}, "old", 7});
  assert_true(api::read_messages(packed.data(), 3, api::kPromptMessageBytes, later).ok());
  assert_int_equal(later.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    assert_memory_equal(&later[i].first, &kMessages[i], sizeof(kMessages[i]));
    assert_true(later[i].name == nullptr && later[i].flags == 0);
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
  for (const uint32_t stride : {0u, 1u, 16u, 23u, 25u, 28u, 4104u, UINT32_MAX}) {
    assert_int_equal(api::read_messages(messages, 2, stride, now).code(), WEIR_ERR_INVALID_ARG);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(chat_messages__of_version_1_0),
      cmocka_unit_test(chat_messages__of_version_1_1),
      cmocka_unit_test(chat_messages__of_a_version_between),
      cmocka_unit_test(chat_messages__of_a_later_version),
  };
  return cmocka_run_group_tests_name("api/chat_messages", tests, nullptr, nullptr);
}
