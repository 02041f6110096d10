// models: weir_model_open calls its progress callback while it reads a file's description and builds the tokenizer. It
// stops at any of these calls when the callback refuses or throws, and nothing stays allocated. Also: what it reports
// about the chat template in a file.
#include <unistd.h>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/chat_message.h"
#include "tests/text/text_test.h"
#include "weir/weir.h"

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

constexpr size_t kTokens = 100000;
constexpr size_t kEntriesBetweenCalls = 20000;  // at most

// A vocabulary-only file on the disk, gone with the object.
class File {
 public:
  explicit File(VocabParts parts) {
    parts.more.add_string("general.architecture", "llama");
    const Bytes bytes = parts.file();
    const int file = mkstemp(path_.data());
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes.data(), bytes.size()), bytes.size());
    close(file);
    n_bytes = bytes.size();
  }
  ~File() { std::remove(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

  uint64_t n_bytes = 0;

 private:
  std::string path_ = "/tmp/weir_opening_XXXXXX";
};

VocabParts large(VocabParts parts) {
  for (size_t i = 0; i < kTokens; ++i) parts.add("token" + std::to_string(i));
  return parts;
}

// The callback's calls so far, and when it is to end the call.
struct Listener {
  size_t stop_at = SIZE_MAX;  // number of the call
  bool throws = false;
  std::vector<weir_progress_info> calls;

  static weir_status call(void* user, const weir_progress_info* info) {
    auto& self = *static_cast<Listener*>(user);
    self.calls.push_back(*info);
    if (self.calls.size() <= self.stop_at) return WEIR_OK;
    if (self.throws) throw std::runtime_error("no more of this");
    return WEIR_ERR_STATE;
  }
};

struct Runtime {
  Runtime() {
    weir_runtime_options options = WEIR_RUNTIME_OPTIONS_INIT;
    options.n_threads = 1;
    assert_int_equal(weir_runtime_create(&options, &handle), WEIR_OK);
  }
  ~Runtime() { weir_runtime_destroy(handle); }
  uint64_t bytes() const {
    weir_memory_counters counters = WEIR_MEMORY_COUNTERS_INIT;
    assert_int_equal(weir_runtime_memory(handle, &counters), WEIR_OK);
    return counters.bytes;
  }
  // Opens and closes the file.
  weir_status open(const char* path, uint32_t flags, Listener& listener) const {
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    options.flags = flags | WEIR_MODEL_VOCAB_ONLY;
    options.progress = Listener::call;
    options.progress_user = &listener;
    weir_model* model = nullptr;
    const weir_status status = weir_model_open(handle, path, &options, &model);
    assert_true((model != nullptr) == (status == WEIR_OK));
    weir_model_close(model);
    return status;
  }

  weir_runtime* handle = nullptr;
};

// 100,000 strings are read, copied, spelled and put into a table; each of these steps calls back.
void opening__the_callback_hears_of_every_stage(void**) {
  const Runtime runtime;
  for (const VocabParts& parts : {byte_level_parts(), spm_parts()}) {
    const File file(large(parts));
    for (const uint32_t flags : {0u, static_cast<uint32_t>(WEIR_MODEL_PREFETCH)}) {
      Listener listener;
      assert_int_equal(runtime.open(file.path(), flags, listener), WEIR_OK);
      assert_true(listener.calls.size() >= 4 * kTokens / kEntriesBetweenCalls);
      uint64_t done = 0;
      for (const weir_progress_info& info : listener.calls) {
        assert_int_equal(info.struct_size, sizeof(weir_progress_info));
        assert_int_equal(info.total, file.n_bytes);
        assert_true(info.done >= done && info.done <= info.total);
        done = info.done;
      }
      assert_int_equal(listener.calls.front().done, 0);
      assert_int_equal(listener.calls.back().done, file.n_bytes);
    }
  }
}

// The same for keys and for tokens with a meaning, which are sorted.
void opening__the_callback_hears_of_keys_and_sorting(void**) {
  const Runtime runtime;
  VocabParts keys = byte_level_parts(), marks = byte_level_parts();
  for (size_t i = 0; i < kTokens; ++i) keys.more.add_u32("key" + std::to_string(i * 7919 % kTokens), 1);
  for (size_t i = 0; i < kTokens; ++i) marks.add("<mark" + std::to_string(i * 7919 % kTokens) + ">", 3);
  for (const VocabParts& parts : {keys, marks}) {
    const File file(parts);
    Listener listener;
    assert_int_equal(runtime.open(file.path(), 0, listener), WEIR_OK);
    // Sorting compares some 17 times as often as there are entries.
    assert_true(listener.calls.size() >= 10 * kTokens / kEntriesBetweenCalls);
    Listener half{listener.calls.size() / 2, true, {}};
    assert_int_equal(runtime.open(file.path(), 0, half), WEIR_ERR_CANCELLED);
    assert_int_equal(half.calls.size(), listener.calls.size() / 2 + 1);
  }
}

// An array of booleans is checked one by one, so checking a long one can be stopped, too.
void opening__the_callback_hears_of_booleans(void**) {
  constexpr size_t kBools = size_t{8} << 20, kBoolsBetweenCalls = size_t{1} << 20;  // at most
  const Runtime runtime;
  VocabParts parts = byte_level_parts();
  parts.more.add_array("booleans", GgufType::kBool, std::vector<uint8_t>(kBools));
  const File file(parts);
  Listener listener;
  assert_int_equal(runtime.open(file.path(), 0, listener), WEIR_OK);
  assert_true(listener.calls.size() >= kBools / kBoolsBetweenCalls);
  Listener half{listener.calls.size() / 2, false, {}};
  assert_int_equal(runtime.open(file.path(), 0, half), WEIR_ERR_CANCELLED);
  assert_int_equal(half.calls.size(), listener.calls.size() / 2 + 1);
}

void opening__any_call_can_end_it(void**) {
  const Runtime runtime;
  const File file(large(byte_level_parts()));
  const uint64_t before = runtime.bytes();
  for (const uint32_t flags : {0u, static_cast<uint32_t>(WEIR_MODEL_PREFETCH)}) {
    Listener all;
    assert_int_equal(runtime.open(file.path(), flags, all), WEIR_OK);
    for (size_t at = 0; at < all.calls.size(); ++at) {
      for (const bool throws : {false, true}) {
        Listener listener{at, throws, {}};
        assert_int_equal(runtime.open(file.path(), flags, listener), WEIR_ERR_CANCELLED);
        assert_int_equal(listener.calls.size(), at + 1);  // and is not called again
        const char* text = weir_last_error();
        if (std::strstr(text, "cancelled") == nullptr || std::strstr(text, file.path()) == nullptr ||
            (std::strstr(text, "the callback threw") != nullptr) != throws) {
          fail_msg("call %zu: %s", at, text);
        }
        assert_int_equal(runtime.bytes(), before);
      }
    }
  }
}

// A file's template is run itself, and what it refuses is told with its line.
void opening__chat_templates(void**) {
  struct Case {
    const char *text, *name;
    weir_status status;
    const char* message;
  };
  const Case cases[] = {
      {"", "", WEIR_ERR_UNSUPPORTED, "no chat template (tokenizer.chat_template); give one"},
      {"{{ '<|im_start|>' + message['role'] + '<|im_end|>' }}{{ '<|im_start|>assistant\\n<think>\\n' }}", "jinja",
       WEIR_ERR_FORMAT, "line 1"},
      {"{{ '<|im_start|>' + message['role'] + '<|im_end|>' }}", "jinja", WEIR_ERR_FORMAT, "line 1"},
      {"{{ messages[0]['content'] }}", "jinja", WEIR_OK, ""},
  };
  const Runtime runtime;
  for (const Case& c : cases) {
    VocabParts parts = byte_level_parts();
    if (c.text[0] != '\0') parts.more.add_string("tokenizer.chat_template", c.text);
    const File file(parts);
    weir_model_options options = WEIR_MODEL_OPTIONS_INIT;
    options.flags = WEIR_MODEL_VOCAB_ONLY;
    weir_model* model = nullptr;
    assert_int_equal(weir_model_open(runtime.handle, file.path(), &options, &model), WEIR_OK);
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    assert_int_equal(weir_model_get_info(model, &info), WEIR_OK);
    assert_string_equal(info.chat_template, c.name);
    assert_string_equal(info.chat_resembles, "");

    const weir_chat_message message = weir_test::chat_message("user", "hello");
    weir_chat_options chat = WEIR_CHAT_OPTIONS_INIT;
    weir_token tokens[64];
    char text[256];
    uint64_t n = 0;
    assert_int_equal(weir_chat_render(model, &message, 1, 0, text, sizeof(text), &n), c.status);
    if (c.status == WEIR_OK) assert_true(std::string(text, n) == "hello");
    assert_int_equal(weir_chat_tokenize(model, &message, 1, &chat, tokens, 64, &n), c.status);
    if (c.status != WEIR_OK) assert_non_null(std::strstr(weir_last_error(), c.message));
    chat.flags = WEIR_CHAT_ACCEPT_RESEMBLING;  // has no effect
    assert_int_equal(weir_chat_tokenize(model, &message, 1, &chat, tokens, 64, &n), c.status);
    assert_int_equal(weir_chat_render(model, &message, 1, chat.flags, text, sizeof(text), &n), c.status);
    // A built-in template by its name, whatever the file has.
    chat.template_text = "chatml";
    assert_int_equal(weir_chat_render_with(model, &message, 1, &chat, text, sizeof(text), &n), WEIR_OK);
    assert_true(std::string(text, n) == "<|im_start|>user\nhello<|im_end|>\n");
    weir_model_close(model);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(opening__the_callback_hears_of_every_stage),
      cmocka_unit_test(opening__the_callback_hears_of_keys_and_sorting),
      cmocka_unit_test(opening__the_callback_hears_of_booleans),
      cmocka_unit_test(opening__any_call_can_end_it),
      cmocka_unit_test(opening__chat_templates),
  };
  return cmocka_run_group_tests_name("models/opening", tests, nullptr, nullptr);
}
