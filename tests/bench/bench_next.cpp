// What a token costs by weir_session_generate, by weir_session_next and by weir_next_many, in turn, of a model whose
// steps take so little that the difference shows. Times are the calling thread's own, which computes alone; of each way
// the best and the median of all rounds. One JSON line.
//
//   bench_next [-m MODEL] [-n TOKENS] [-r ROUNDS]
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/bench/session_bench.h"

namespace {

using namespace session_bench;

struct Sum {
  uint64_t n_tokens = 0, n_bytes = 0;
};

weir_status take(void* user, const weir_token_event* event) {
  auto* sum = static_cast<Sum*>(user);
  sum->n_tokens += event->token >= 0 ? 1 : 0;
  sum->n_bytes += event->text_bytes;
  return WEIR_OK;
}

weir_generate_options options_of(uint32_t n_tokens) {
  weir_generate_options options = WEIR_GENERATE_OPTIONS_INIT;
  options.max_tokens = n_tokens;
  options.flags = WEIR_GENERATE_IGNORE_EOS;
  return options;
}

void by_generate(weir_session* session, uint32_t n_tokens, Sum& sum) {
  weir_generate_options options = options_of(n_tokens);
  weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
  options.on_token = take;
  options.user = &sum;
  check(weir_session_generate(session, &options, &result), "generate");
}

void by_next(weir_session* session, uint32_t n_tokens, Sum& sum) {
  const weir_generate_options options = options_of(n_tokens);
  weir_event event = WEIR_EVENT_INIT;
  check(weir_session_begin(session, &options), "begin");
  for (;;) {
    check(weir_session_next(session, &event), "next");
    if (event.kind == WEIR_EVENT_END) return;
    sum.n_tokens += event.kind == WEIR_EVENT_TOKEN ? 1 : 0;
    sum.n_bytes += event.text_bytes;
  }
}

void by_next_many(weir_session* session, uint32_t n_tokens, Sum& sum) {
  const weir_generate_options options = options_of(n_tokens);
  weir_event event = WEIR_EVENT_INIT;
  check(weir_session_begin(session, &options), "begin");
  for (;;) {
    check(weir_next_many(&session, &event, 1, nullptr), "next_many");
    if (event.kind == WEIR_EVENT_END) return;
    sum.n_tokens += event.kind == WEIR_EVENT_TOKEN ? 1 : 0;
    sum.n_bytes += event.text_bytes;
  }
}

struct Way {
  const char* name;
  void (*run)(weir_session*, uint32_t, Sum&);
  std::vector<double> us;
};

}  // namespace

int main(int argc, char** argv) {
  const char* path = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
  uint32_t n_tokens = 100, n_rounds = 2000;
  read_flags(argc, argv, {{'m', &path}, {'n', nullptr, &n_tokens}, {'r', nullptr, &n_rounds}});
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  weir_runtime_options threads = WEIR_RUNTIME_OPTIONS_INIT;
  threads.n_threads = 1;
  check(weir_runtime_create(&threads, &runtime), "runtime");
  check(weir_model_open(runtime, path, nullptr, &model), "model");
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.context_tokens = n_tokens + 8;
  check(weir_session_create(model, &options, &session), "create");
  const weir_token first = 5;
  check(weir_session_step(session, first), "step");
  Way ways[] = {{"generate", by_generate, {}}, {"next", by_next, {}}, {"next_many", by_next_many, {}}};
  Sum expected;
  for (uint32_t round = 0; round < n_rounds; ++round) {
    for (Way& way : ways) {
      check(weir_session_rewind(session, 0, 0), "rewind");
      check(weir_session_step(session, first), "step");
      Sum sum;
      const double start = thread_us();
      way.run(session, n_tokens, sum);
      way.us.push_back((thread_us() - start) / static_cast<double>(sum.n_tokens));
      if (round == 0 && &way == ways) expected = sum;
      if (sum.n_tokens == expected.n_tokens && sum.n_bytes == expected.n_bytes) continue;
      std::fprintf(stderr, "bench_next: %s gave another answer\n", way.name);
      return 1;
    }
  }
  std::printf("{\"tokens\": %llu, \"rounds\": %u", static_cast<unsigned long long>(expected.n_tokens), n_rounds);
  for (Way& way : ways) {
    std::sort(way.us.begin(), way.us.end());
    std::printf(", \"%s_us\": %.3f, \"%s_median_us\": %.3f", way.name, way.us.front(), way.name,
                way.us[way.us.size() / 2]);
  }
  std::printf("}\n");
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return 0;
}
