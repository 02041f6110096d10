// text: vocabularies that must be refused, with the key and the index in the message; and every allocation failing in
// turn.
#include <functional>
#include <limits>
#include <new>

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

void assert_refused(const Bytes& file, weir_status code, std::initializer_list<const char*> parts) {
  const Opened t(file);
  assert_int_equal(t.status().code(), code);
  for (const char* part : parts) {
    if (std::strstr(last_error_text(), part) == nullptr) fail_msg("\"%s\" is not in \"%s\"", part, last_error_text());
  }
}

void bad_vocabs__unknown_kinds(void**) {
  VocabParts parts = byte_level_parts();
  parts.pre = "no-such-thing";
  assert_refused(parts.file(), WEIR_ERR_UNSUPPORTED, {"tokenizer.ggml.pre", "no-such-thing"});
  parts.pre = "gpt-2 ";
  assert_refused(parts.file(), WEIR_ERR_UNSUPPORTED, {"gpt-2 "});
  parts.model = "bert";
  assert_refused(parts.file(), WEIR_ERR_UNSUPPORTED, {"tokenizer.ggml.model", "bert"});
  assert_refused(GgufWriter().build(), WEIR_ERR_FORMAT, {"tokenizer.ggml.model"});
}

void bad_vocabs__missing_or_wrong_arrays(void**) {
  const auto base = [](const char* model) { return GgufWriter().add_string("tokenizer.ggml.model", model); };
  assert_refused(base("gpt2").build(), WEIR_ERR_FORMAT, {"tokenizer.ggml.tokens"});
  assert_refused(base("gpt2").add_u32("tokenizer.ggml.tokens", 3).build(), WEIR_ERR_FORMAT,
                 {"tokenizer.ggml.tokens", "array"});
  assert_refused(base("gpt2").add_array("tokenizer.ggml.tokens", GgufType::kI32, std::vector<int32_t>{1}).build(),
                 WEIR_ERR_FORMAT, {"tokenizer.ggml.tokens", "string"});
  assert_refused(base("gpt2").add_strings("tokenizer.ggml.tokens", {}).build(), WEIR_ERR_FORMAT,
                 {"tokenizer.ggml.tokens", "0 tokens"});
  assert_refused(base("gpt2").add_strings("tokenizer.ggml.tokens", {"a"}).build(), WEIR_ERR_FORMAT,
                 {"tokenizer.ggml.merges"});
  assert_refused(base("llama").add_strings("tokenizer.ggml.tokens", {"a"}).build(), WEIR_ERR_FORMAT,
                 {"tokenizer.ggml.scores"});
  const auto with_a = base("gpt2").add_strings("tokenizer.ggml.tokens", {"a"}).add_strings("tokenizer.ggml.merges", {});
  assert_true(Opened(with_a.build()).status().ok());
  assert_refused(
      GgufWriter(with_a).add_array("tokenizer.ggml.token_type", GgufType::kF32, std::vector<float>{1}).build(),
      WEIR_ERR_FORMAT, {"tokenizer.ggml.token_type", "integers", "f32"});
}

void bad_vocabs__array_lengths(void**) {
  VocabParts parts = byte_level_parts();
  parts.types.pop_back();
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.token_type", "263", "264"});
  parts = spm_parts();
  parts.scores.push_back(0.0f);
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.scores", "270", "269"});
}

void bad_vocabs__elements(void**) {
  VocabParts parts = byte_level_parts();
  parts.types[77] = 9;
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.token_type[77]", "9"});
  parts.types[77] = -1;
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.token_type[77]"});
  parts = byte_level_parts();
  parts.tokens[5] = std::string(kMaxTokenBytes, 'q');
  parts.tokens[7].clear();
  for (size_t i = 0; i < kMaxTokenBytes; ++i) parts.tokens[7] += byte_letter(' ');  // what a token stands for counts
  assert_true(Opened(parts.file()).status().ok());
  parts.tokens[5] += "q";
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.tokens[5]", "1025"});
  parts.tokens[5] = std::string(100000, 'q');
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.tokens[5]", "100000"});
  parts = spm_parts();
  parts.scores[260] = std::numeric_limits<float>::quiet_NaN();
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.scores[260]"});
}

void bad_vocabs__merges(void**) {
  const auto refused = [](const char* merge, const char* why) {
    VocabParts parts = byte_level_parts();
    parts.merges.push_back(merge);
    assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.merges[5]", why});
  };
  for (const char* merge : {"", " ", "ab", " b", "a ", "a  b", "a b c"}) refused(merge, "one space");
  refused("xx a", "left half");
  refused("a xx", "right half");
  refused("q q", "result");
  VocabParts parts = byte_level_parts();
  parts.merges.push_back("l l");  // a pair that comes twice keeps its first rank
  assert_true(Opened(parts.file()).status().ok());
}

void bad_vocabs__ids(void**) {
  for (const char* key : {"bos_token_id", "eot_token_id", "unknown_token_id", "padding_token_id"}) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    VocabParts parts = byte_level_parts();
    parts.more.add_u32(name, 263);
    assert_true(Opened(parts.file()).status().ok());
    parts = byte_level_parts();
    parts.more.add_string(name, "263");
    assert_refused(parts.file(), WEIR_ERR_FORMAT, {name.c_str(), "integer"});
  }
  VocabParts parts = byte_level_parts();
  parts.more.add_bool("tokenizer.ggml.add_bos_token", true);
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.add_bos_token"});
  parts = byte_level_parts();
  parts.more.add_u32("tokenizer.ggml.bos_token_id", 264).add_bool("tokenizer.ggml.add_bos_token", true);
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.add_bos_token"});  // the id is needed, and is none
  parts = byte_level_parts();
  parts.more.add_u32("tokenizer.ggml.add_eos_token", 2);
  assert_refused(parts.file(), WEIR_ERR_FORMAT, {"tokenizer.ggml.add_eos_token", "bool"});
}

// Cut short anywhere, a file is refused or gives a tokenizer that works.
void bad_vocabs__cut_files(void**) {
  for (const VocabParts& parts : {byte_level_parts(), spm_parts()}) {
    const Bytes file = parts.file();
    for (size_t n = 0; n < file.size(); n += 7) {
      const Opened t(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n)));
      assert_false(t.status().ok());
    }
  }
}

// Fails the n-th allocation, and counts what is held.
class FailingMemory final : public std::pmr::memory_resource {
 public:
  explicit FailingMemory(int64_t fail_at) : left_(fail_at) {}
  int64_t held() const { return held_; }
  bool failed() const { return left_ < 0; }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    if (left_-- == 0) throw std::bad_alloc();
    void* block = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    ++held_;
    return block;
  }
  void do_deallocate(void* block, size_t bytes, size_t alignment) override {
    --held_;
    std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  int64_t left_, held_ = 0;
};

// Runs `work` with the first, second, ... allocation failing, until none fails. Work may succeed without an allocation
// (machine code for an expression), but nothing may stay allocated.
void fail_each_allocation(const std::function<void(FailingMemory&)>& work) {
  for (int64_t n = 0;; ++n) {
    FailingMemory memory(n);
    bool threw = false;
    try {
      work(memory);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    assert_int_equal(memory.held(), 0);
    assert_true(memory.failed() || !threw);
    if (!memory.failed()) {
      assert_true(n > 3);
      return;
    }
  }
}

void memory__each_allocation_failing_in_turn(void**) {
  for (VocabParts parts : {byte_level_parts(), spm_parts()}) {
    if (parts.model == "gpt2") parts.pre = "deepseek-llm";
    const Bytes bytes = parts.file();
    HostMemory host{AllocatorHooks()};
    GgufFile file(&host);
    assert_true(file.parse(bytes).ok());
    fail_each_allocation([&](FailingMemory& memory) {
      Tokenizer tokenizer(&memory);
      if (!tokenizer.build(file).ok()) fail_msg("%s", last_error_text());
    });
    Tokenizer tokenizer(&host);
    assert_true(tokenizer.build(file).ok());
    fail_each_allocation([&](FailingMemory& memory) {
      std::pmr::vector<weir_token> out(&memory);
      out.reserve(4);
      out = {1, 2, 3, 4};
      try {
        assert_true(tokenizer.encode("hello hello\xFF <tool>some words", WEIR_TOKENIZE_SPECIAL, out).ok());
        assert_true(out.size() > 4);
      } catch (const std::bad_alloc&) {
        assert_int_equal(out.size(), 4);
        throw;
      }
    });
  }
}

// A refused file leaves nothing behind, and the same object can then be built from a good one.
void memory__a_refused_file_leaves_nothing(void**) {
  VocabParts parts = byte_level_parts();
  parts.merges.push_back("x y z");
  const Bytes bad = parts.file(), good = byte_level_parts().file();
  HostMemory memory{AllocatorHooks()};
  {
    GgufFile bad_file(&memory), good_file(&memory);
    assert_true(bad_file.parse(bad).ok() && good_file.parse(good).ok());
    const uint64_t before = memory.bytes();
    Tokenizer tokenizer(&memory);
    assert_int_equal(tokenizer.build(bad_file).code(), WEIR_ERR_FORMAT);
    assert_int_equal(memory.bytes(), before);
    assert_true(tokenizer.build(good_file).ok());
    assert_int_equal(tokenizer.build(good_file).code(), WEIR_ERR_STATE);
    assert_int_equal(encode(tokenizer, "hello").size(), 1);
  }
  assert_int_equal(memory.bytes(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bad_vocabs__unknown_kinds),
      cmocka_unit_test(bad_vocabs__missing_or_wrong_arrays),
      cmocka_unit_test(bad_vocabs__array_lengths),
      cmocka_unit_test(bad_vocabs__elements),
      cmocka_unit_test(bad_vocabs__merges),
      cmocka_unit_test(bad_vocabs__ids),
      cmocka_unit_test(bad_vocabs__cut_files),
      cmocka_unit_test(memory__each_allocation_failing_in_turn),
      cmocka_unit_test(memory__a_refused_file_leaves_nothing),
  };
  return cmocka_run_group_tests_name("text/bad_vocabs", tests, nullptr, nullptr);
}
