// What weir_session_fork takes: seconds and resident memory of forks of a conversation under a policy that recalls
// pages, of steps in the session and its forks afterwards, and of destroying the session while the forks live on. One
// JSON line.
//
//   bench_fork -m MODEL [-p POLICY] [-n TOKENS] [-l BUDGET_TOKENS] [-s SPILL_MIB] [-f FORKS] [-k STEPS] [-j THREADS]
#include <chrono>
#include <cstdio>
#include <vector>

#include "tests/bench/session_bench.h"

namespace {

using namespace session_bench;

struct Settings {
  const char* model = nullptr;
  const char* policy = "arkvale";
  uint32_t n_tokens = 8192, budget = 512, spill_mib = 0, n_forks = 1, n_steps = 64, n_threads = 0;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  read_flags(argc, argv,
             {{'m', &s.model},
              {'p', &s.policy},
              {'n', nullptr, &s.n_tokens},
              {'l', nullptr, &s.budget},
              {'s', nullptr, &s.spill_mib},
              {'f', nullptr, &s.n_forks},
              {'k', nullptr, &s.n_steps},
              {'j', nullptr, &s.n_threads}});
  return s;
}

// Seconds and growth of resident memory since the last question.
struct Meter {
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  uint64_t rss = resident_bytes();

  void print(const char* name) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    const uint64_t now = resident_bytes();
    std::printf(", \"%s_ms\": %.1f, \"%s_rss_mb\": %.1f", name, seconds * 1e3, name,
                (static_cast<double>(now) - static_cast<double>(rss)) / 1e6);
    rss = now;
    since = std::chrono::steady_clock::now();
  }
};

}  // namespace

int main(int argc, char** argv) {
  const Settings s = read_settings(argc, argv);
  if (s.model == nullptr) {
    std::fprintf(stderr, "bench_fork: -m MODEL is required\n");
    return 2;
  }
  weir_runtime* runtime = nullptr;
  weir_model* model = nullptr;
  weir_runtime_options threads = WEIR_RUNTIME_OPTIONS_INIT;
  threads.n_threads = s.n_threads;
  check(weir_runtime_create(&threads, &runtime), "runtime");
  check(weir_model_open(runtime, s.model, nullptr, &model), "model");
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = WEIR_DEVICE_CPU;
  options.context_tokens = s.n_tokens + s.n_steps;
  options.budget_tokens = s.budget;
  options.policy = s.policy;
  options.spill_budget_bytes = uint64_t{s.spill_mib} << 20;
  std::vector<weir_session*> sessions(1 + s.n_forks, nullptr);
  check(weir_session_create(model, &options, &sessions[0]), "create");
  std::vector<weir_token> prompt;
  for (uint32_t i = 0; i < s.n_tokens; ++i) prompt.push_back(static_cast<weir_token>(100 + i * 2654435761u % 1009));
  check(weir_session_prefill(sessions[0], prompt.data(), prompt.size(), nullptr, nullptr), "prefill");
  weir_session_stats stats = WEIR_SESSION_STATS_INIT;
  check(weir_session_get_stats(sessions[0], &stats), "stats");
  std::printf("{\"policy\": \"%s\", \"budget\": %u, \"tokens\": %u, \"forks\": %u, \"stored_mb\": %.1f", s.policy,
              s.budget, s.n_tokens, s.n_forks, static_cast<double>(stats.spill_stored_bytes) / 1e6);

  Meter meter;
  for (uint32_t i = 1; i <= s.n_forks; ++i) check(weir_session_fork(sessions[0], &sessions[i]), "fork");
  meter.print("fork");
  for (uint32_t i = 0; i < s.n_steps; ++i) {
    for (weir_session* session : sessions) check(weir_session_step(session, prompt[i]), "step");
  }
  meter.print("steps");
  weir_session_destroy(sessions[0]);
  meter.print("destroy");
  std::printf("}\n");
  for (uint32_t i = 1; i <= s.n_forks; ++i) weir_session_destroy(sessions[i]);
  weir_model_close(model);
  weir_runtime_destroy(runtime);
  return 0;
}
