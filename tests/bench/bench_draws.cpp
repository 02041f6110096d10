// What a drawn token costs as a step of the session has it: greedy, with random draws, with log-probabilities of the
// most probable, and under a constraint; wall time, in turns, of each way the best and the median of all rounds. On a
// device the way of the logits counts, too. One JSON line.
//
//   bench_draws -m MODEL [-d DEVICE] [-n TOKENS] [-r ROUNDS]
//
// DEVICE: enum weir_device_type.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "tests/bench/session_bench.h"

namespace {

using namespace session_bench;

// Lines of a small table: places with many tokens and with few follow each other, and it never has to end.
constexpr std::string_view kGrammar = "root ::= (\"{\\\"\" [a-z_]+ \"\\\": \" [0-9]+ \"}\\n\")+";

double wall_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Way {
  const char* name;
  float temperature, top_p;
  uint32_t n_top;
  bool is_ruled;
  std::vector<double> us;
};

}  // namespace

int main(int argc, char** argv) {
  const char* path = WEIR_SOURCE_DIR "/tests/golden/models/llama_f32.gguf";
  uint32_t device = WEIR_DEVICE_CPU, n_tokens = 200, n_rounds = 5;
  read_flags(argc, argv, {{'m', &path}, {'d', nullptr, &device}, {'n', nullptr, &n_tokens}, {'r', nullptr, &n_rounds}});
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_session* session = nullptr;
  weir_constraint* constraint = nullptr;
  check(weir_runtime_create(nullptr, &runtime), "runtime");
  check(weir_model_open(runtime, path, nullptr, &model), "model");
  weir_model_info info = WEIR_MODEL_INFO_INIT;
  check(weir_model_get_info(model, &info), "info");
  check(weir_constraint_create(model, WEIR_CONSTRAINT_GBNF, kGrammar.data(), kGrammar.size(), &constraint), "grammar");
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = static_cast<int32_t>(device);
  options.context_tokens = n_tokens + 8;
  check(weir_session_create(model, &options, &session), "create");
  const weir_token first = 5;
  check(weir_session_step(session, first), "step");
  Way ways[] = {{"greedy", 0.0f, 1.0f, 0, false, {}},
                {"drawn", 0.8f, 0.95f, 0, false, {}},
                {"greedy_top5", 0.0f, 1.0f, 5, false, {}},
                {"greedy_ruled", 0.0f, 1.0f, 0, true, {}},
                {"drawn_ruled", 0.8f, 0.95f, 0, true, {}}};
  for (uint32_t round = 0; round < n_rounds; ++round) {
    for (Way& way : ways) {
      check(weir_session_rewind(session, 0, 0), "rewind");
      check(weir_session_step(session, first), "step");
      weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
      sampling.temperature = way.temperature;
      sampling.top_p = way.top_p;
      check(weir_session_set_sampling(session, &sampling), "sampling");
      check(weir_session_set_constraint(session, way.is_ruled ? constraint : nullptr, 0), "constraint");
      weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
      generate.max_tokens = n_tokens;
      generate.flags = WEIR_GENERATE_IGNORE_EOS;
      generate.n_top = way.n_top;
      weir_event event = WEIR_EVENT_INIT;
      uint32_t n = 0;
      const double start = wall_us();
      check(weir_session_begin(session, &generate), "begin");
      do {
        check(weir_session_next(session, &event), "next");
        n += event.kind == WEIR_EVENT_TOKEN ? 1 : 0;
      } while (event.kind != WEIR_EVENT_END);
      if (n != n_tokens) {
        std::fprintf(stderr, "bench_draws: %s ended after %u tokens\n", way.name, n);
        return 1;
      }
      way.us.push_back((wall_us() - start) / n_tokens);
    }
  }
  std::printf("{\"device\": %u, \"vocabulary\": %u, \"tokens\": %u, \"rounds\": %u", device, info.vocab_size, n_tokens,
              n_rounds);
  for (Way& way : ways) {
    std::sort(way.us.begin(), way.us.end());
    std::printf(", \"%s_us\": %.1f, \"%s_median_us\": %.1f", way.name, way.us.front(), way.name,
                way.us[way.us.size() / 2]);
  }
  std::printf("}\n");
  weir_constraint_destroy(constraint);
  weir_session_destroy(session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return 0;
}
