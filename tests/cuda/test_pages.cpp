// cuda: policies on the GPU keep the pages that they keep on the CPU. Both devices are fed the same tokens of a real answer; the page tables of all
// streams are compared on the way. Rules that look at positions alone must give equal tables; where scores decide, near ties fall either way (measured
// on an H200: 99.4 % of pages in common at the least).
#include <algorithm>
#include <cstdio>
#include <vector>

#include "api/handles.h"
#include "tests/cuda/problem_tokens.h"

namespace {

constexpr uint32_t kPrompt = 300, kSteps = 600, kEvery = 20;
constexpr uint32_t kBudget = 384;  // the prompt's 19 pages and 5 more

struct Row {
  variant v;
  double equal_pages;  // least part of resident pages that both devices have; 1: tables are equal
};

const Row kRows[] = {
    {{"dense", {}, 0}, 1.0},
    {{"sink", {}, 0}, 1.0},
    {{"sink", {{"positions", "abs"}}, 1}, 1.0},
    {{"sink", {{"exact_mask", "true"}, {"window", "200"}}, 2}, 1.0},
    {{"quest", {{"skip_layers", "0"}}, 1}, 1.0},
    {{"quest", {{"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 3}, 1.0},
    {{"raas", {{"alpha", "1"}}, 1}, 1.0},  // nothing is stamped after its page was opened: the oldest page leaves
    {{"raas", {}, 0}, 0.98},
    {{"raas", {{"alpha", "0.1"}}, 1}, 0.98},
    {{"raas", {{"r", "0.5"}, {"protect_recent", "0"}}, 2}, 0.98},
    {{"raas", {{"pin_prompt", "false"}, {"stamp_source", "digest"}}, 2}, 0.98},
    {{"raas", {{"stamp_source", "digest"}, {"digest", "cuboid_mean"}}, 2}, 0.98},
    {{"raas", {{"prompt", "snapkv"}, {"prompt_budget", "160"}}, 2}, 0.98},
    {{"h2o", {{"skip_layers", "0"}}, 1}, 0.98},
    {{"h2o", {{"score", "norm_sum"}, {"init", "window"}}, 2}, 0.98},
    {{"tova", {{"skip_layers", "0"}}, 1}, 0.98},
    {{"tova", {{"scope", "stream"}, {"prompt", "snapkv"}}, 2}, 0.98},
    {{"hybrid", {}, 0}, 0.98},
    {{"hybrid", {{"skip_layers", "0"}, {"alpha", "0.1"}}, 2}, 0.98},
};

struct Counts {
  uint64_t tables = 0, equal_tables = 0, pages = 0, common_pages = 0;
  uint32_t first_other = 0;  // tokens when tables differed first
};

weir::Session& internals(weir_session* session) { return *session; }

void compare(weir_session* const* sessions, Counts& counts) {
  for (int i = 0; i < 2; ++i) assert_true(internals(sessions[i]).host_tables().ok());
  const weir::KvCache &cpu = internals(sessions[0]).kv(), &gpu = internals(sessions[1]).kv();
  assert_int_equal(cpu.n_tokens(), gpu.n_tokens());
  for (uint32_t s = 0; s < cpu.shape().n_streams(); ++s) {
    const weir::StreamView a = cpu.stream(s), b = gpu.stream(s);
    assert_int_equal(a.n_pages, b.n_pages);
    const bool equal = std::equal(a.first_pos, a.first_pos + a.n_pages, b.first_pos);
    ++counts.tables;
    counts.equal_tables += equal ? 1 : 0;
    if (!equal && counts.first_other == 0) counts.first_other = cpu.n_tokens();
    counts.pages += a.n_pages;
    std::vector<bool> used(cpu.shape().n_slots());
    for (uint32_t row = 0; row < b.n_pages; ++row) {
      const uint32_t pos = b.first_pos[row];
      const uint32_t* found = std::lower_bound(a.first_pos, a.first_pos + a.n_pages, pos);
      assert_true(row == 0 || b.first_pos[row - 1] < pos);
      assert_true(b.slots[row] < used.size() && !used[b.slots[row]]);
      used[b.slots[row]] = true;
      if (found == a.first_pos + a.n_pages || *found != pos) continue;
      ++counts.common_pages;
      const auto at = static_cast<uint32_t>(found - a.first_pos);
      assert_int_equal(a.len[at], b.len[row]);
      assert_int_equal(a.flags[at], b.flags[row]);
    }
  }
}

Counts run(const fixture& f, const Row& row, const std::vector<weir_token>& tokens) {
  weir_session* sessions[2] = {nullptr, nullptr};
  Counts counts;
  for (int i = 0; i < 2; ++i) {
    const weir_session_options options = options_of(&row.v, i == 0 ? WEIR_DEVICE_CPU : WEIR_DEVICE_CUDA, kBudget, 1024);
    // A budget is the context of dense.
    weir_session_options whole = options;
    if (strcmp(row.v.policy, "dense") == 0) whole.budget_tokens = 0;
    assert_ok(weir_session_create(f.model, &whole, &sessions[i]));
    assert_ok(weir_session_prefill(sessions[i], tokens.data(), kPrompt, nullptr, nullptr));
  }
  compare(sessions, counts);
  for (uint32_t step = 0; step < kSteps; ++step) {
    weir_session_stats stats[2] = {WEIR_SESSION_STATS_INIT, WEIR_SESSION_STATS_INIT};
    for (int i = 0; i < 2; ++i) {
      assert_ok(weir_session_step(sessions[i], tokens[kPrompt + step]));
      assert_ok(weir_session_get_stats(sessions[i], &stats[i]));
    }
    assert_int_equal(stats[0].pages_resident, stats[1].pages_resident);
    assert_int_equal(stats[0].pages_resident_max, stats[1].pages_resident_max);
    assert_int_equal(stats[0].pages_evicted, stats[1].pages_evicted);
    assert_int_equal(stats[0].pages_attended, stats[1].pages_attended);
    assert_int_equal(stats[0].n_tokens, stats[1].n_tokens);
    if (step % kEvery == kEvery - 1) compare(sessions, counts);
  }
  for (weir_session* session : sessions) weir_session_destroy(session);
  return counts;
}

void pages__as_on_the_cpu(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  weir_cli::ProblemOptions options;
  options.family = "facts";
  options.steps = 60;
  const weir::test::ProblemTokens problem = weir::test::problem_tokens(f.model, options);
  std::vector<weir_token> tokens = problem.prompt;
  tokens.insert(tokens.end(), problem.answer.begin(), problem.answer.end());
  assert_true(tokens.size() >= kPrompt + kSteps);
  bool ok = true;
  std::printf("%-64s %14s %14s %12s\n", "policy", "equal tables", "common pages", "first other");
  for (const Row& row : kRows) {
    const Counts c = run(f, row, tokens);
    const double common = static_cast<double>(c.common_pages) / static_cast<double>(c.pages);
    const bool row_ok = row.equal_pages < 1.0 ? common >= row.equal_pages : c.equal_tables == c.tables;
    std::printf("%-64s %12.2f %% %12.2f %% %12u%s\n", describe(&row.v),
                100.0 * static_cast<double>(c.equal_tables) / static_cast<double>(c.tables), 100.0 * common,
                c.first_other, row_ok ? "" : "   TOO FEW");
    ok = ok && row_ok;
  }
  std::fflush(stdout);
  close_gpu_fixture(&f);
  assert_true(ok);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(pages__as_on_the_cpu)};
  return cmocka_run_group_tests_name("cuda_pages", tests, nullptr, nullptr);
}
