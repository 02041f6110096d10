// A long answer under a policy that recalls pages: memory, counters and speed along the way, one JSON line each time
// -e tokens were decoded. The store's budget is to be smaller than the answer, so that it fills. Exit status 1 when the
// session's bytes are not those of its plan, when anything was allocated while decoding, or when resident memory grew
// by more than the plan.
//
//   bench_recall -m MODEL [-p POLICY] [-n TOKENS] [-e EVERY] [-l BUDGET_TOKENS] [-s SPILL_MIB] [-j THREADS]
//                [-o KEY=VALUE]...
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/bench/session_bench.h"

namespace {

using namespace session_bench;

struct Settings {
  const char* model = nullptr;
  const char* policy = "arkvale";
  uint32_t n_tokens = 100000, every = 1000, budget = 512, spill_mib = 128, n_threads = 0;
  std::vector<std::string> texts;
  std::vector<weir_key_value> options;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  read_flags(argc, argv,
             {{'m', &s.model},
              {'p', &s.policy},
              {'n', nullptr, &s.n_tokens},
              {'e', nullptr, &s.every},
              {'l', nullptr, &s.budget},
              {'s', nullptr, &s.spill_mib},
              {'j', nullptr, &s.n_threads},
              {'o', nullptr, nullptr, &s.texts}});
  for (std::string& text : s.texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    text[equals] = '\0';
    s.options.push_back({text.c_str(), text.c_str() + equals + 1});
  }
  return s;
}

struct Run {
  const Settings& settings;
  weir_session* session;
  weir_plan_info plan;
  uint64_t rss_before;
  uint64_t max_rss = 0;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

  void report(uint32_t n_decoded) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - since).count();
    since = now;
    weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    check(weir_session_memory(session, &memory), "memory");
    check(weir_session_get_stats(session, &stats), "stats");
    const uint64_t rss = resident_bytes();
    max_rss = rss > max_rss ? rss : max_rss;
    const auto number = [](uint64_t x) { return static_cast<unsigned long long>(x); };
    std::printf(
        "{\"decoded\": %u, \"kv_bytes\": %llu, \"spill_stored_bytes\": %llu, \"session_bytes\": %llu, "
        "\"plan_bytes\": %llu, \"late_allocs\": %llu, \"rss_growth\": %lld, \"pages_cold\": %llu, "
        "\"pages_recalled\": %llu, \"pages_dropped\": %llu, \"spill_waits\": %llu, \"tok_per_s\": %.1f}\n",
        n_decoded, number(memory.kv_bytes), number(stats.spill_stored_bytes), number(memory.bytes),
        number(memory.plan_bytes), number(memory.allocs_while_decoding), static_cast<long long>(rss - rss_before),
        number(stats.pages_cold), number(stats.pages_recalled), number(stats.pages_dropped), number(stats.spill_waits),
        settings.every / seconds);
    std::fflush(stdout);
  }
};

weir_status on_token(void* user, const weir_token_event* event) {
  Run& run = *static_cast<Run*>(user);
  if (event->token >= 0 && event->index % run.settings.every == 0 && event->index != 0) run.report(event->index);
  return WEIR_OK;
}

weir_session* open_session(const Settings& s, weir_model* model, weir_plan_info& plan) {
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.context_tokens = s.n_tokens + 256;
  options.budget_tokens = s.budget;
  options.policy = s.policy;
  options.policy_options = s.options.data();
  options.n_policy_options = static_cast<uint32_t>(s.options.size());
  options.spill_budget_bytes = uint64_t{s.spill_mib} << 20;
  check(weir_plan(model, &options, &plan), "plan");
  weir_session* session = nullptr;
  check(weir_session_create(model, &options, &session), "create");
  // Greedy answers of a model beyond its length end in loops; drawn ones do not.
  weir_sampling_options sampling = WEIR_SAMPLING_OPTIONS_INIT;
  sampling.temperature = 1.0f;
  sampling.seed = 7;
  check(weir_session_set_sampling(session, &sampling), "sampling");
  return session;
}

}  // namespace

int main(int argc, char** argv) {
  const Settings s = read_settings(argc, argv);
  if (s.model == nullptr) {
    std::fprintf(stderr, "bench_recall: -m MODEL is required\n");
    return 2;
  }
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_runtime_options threads = WEIR_RUNTIME_OPTIONS_INIT;
  threads.n_threads = s.n_threads;
  check(weir_runtime_create(&threads, &runtime), "runtime");
  check(weir_model_open(runtime, s.model, nullptr, &model), "model");
  Run run = {s, nullptr, WEIR_PLAN_INFO_INIT, resident_bytes()};
  run.session = open_session(s, model, run.plan);
  const weir_plan_info& p = run.plan;
  std::printf(
      "{\"policy\": \"%s\", \"budget\": %u, \"spill_mib\": %u, \"context\": %u, \"plan\": {\"total\": %llu, \"kv\": "
      "%llu, \"digests\": %llu, \"tables\": %llu, \"spill\": %llu}, \"weights\": %llu}\n",
      s.policy, s.budget, s.spill_mib, p.context_tokens, static_cast<unsigned long long>(p.total_bytes),
      static_cast<unsigned long long>(p.kv_bytes), static_cast<unsigned long long>(p.digest_bytes),
      static_cast<unsigned long long>(p.table_bytes), static_cast<unsigned long long>(p.spill_bytes),
      static_cast<unsigned long long>(p.weights_bytes));
  std::vector<weir_token> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back(100 + i * 37 % 1000);
  check(weir_session_prefill(run.session, prompt.data(), prompt.size(), nullptr, nullptr), "prefill");
  weir_generate_options generate = WEIR_GENERATE_OPTIONS_INIT;
  generate.max_tokens = s.n_tokens;
  generate.flags = WEIR_GENERATE_IGNORE_EOS;
  generate.on_token = on_token;
  generate.user = &run;
  weir_generate_result result = WEIR_GENERATE_RESULT_INIT;
  check(weir_session_generate(run.session, &generate, &result), "generate");
  run.report(result.n_tokens);
  weir_memory_info memory = WEIR_MEMORY_INFO_INIT;
  check(weir_session_memory(run.session, &memory), "memory");
  // The weights are mapped and become resident as they are read; the rest is the runtime's threads.
  constexpr uint64_t kSpare = 4 << 20;
  const bool good = memory.bytes == memory.plan_bytes && memory.peak_bytes == memory.plan_bytes &&
                    memory.allocs_while_decoding == 0 &&
                    run.max_rss <= run.rss_before + p.total_bytes + p.weights_bytes + kSpare;
  std::fprintf(stderr, "%s\n", good ? "as planned" : "not as planned");
  weir_session_destroy(run.session);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return good ? 0 : 1;
}
