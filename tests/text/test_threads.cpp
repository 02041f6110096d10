// text: one tokenizer, many threads. Pieces that are whole tokens are cached on first use, so the threads begin
// together.
#include <atomic>
#include <thread>

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

void threads__encode_and_decode_together(void**) {
  constexpr size_t kThreads = 6;
  for (const char* name : {"gpt-2", "deepseek-llm", "llama-spm"}) {
    const Opened alone(vocab_path(name)), shared(vocab_path(name));
    const std::string text = read_file(vocab_path(name) + ".inp");
    const Ids wanted = encode(*alone, text);
    assert_true(wanted.size() > 100);
    std::atomic<size_t> n_waiting{0}, n_right{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        n_waiting.fetch_add(1);
        while (n_waiting.load() < kThreads) std::this_thread::yield();
        const Ids ids = encode(*shared, text);
        if (ids == wanted && decode(*shared, ids) == text) n_right.fetch_add(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    assert_int_equal(n_right.load(), kThreads);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(threads__encode_and_decode_together)};
  return cmocka_run_group_tests_name("text/threads", tests, nullptr, nullptr);
}
