// device: recall on the GPU. The pool, the store's parts and the time at which pages come change no bit of what a
// session computes. What it computes is what the CPU does, except for rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/device/problem_tokens.h"
#include "tests/device/recall_session.h"
#include "tests/vulkan/shim/hide_matrices.h"

namespace {

using namespace recall_session;

constexpr uint32_t kSteps = 400, kPrompt = 200;

struct Run {
  std::vector<std::vector<float>> logits;
  weir_session_stats stats;
};

// A prompt, steps, a second prompt that begins inside a page, and steps again. Whatever the pool, the second prompt is
// cut into chunks of more than eight tokens: matrices multiply fewer in another way.
Run run(const fixture& f, const Setup& setup) {
  const Session session = open_session(f, setup);
  Run run;
  prefill(session, 0, kPrompt);
  run.logits.push_back(logits_of(session));
  const uint32_t n_steps = steps_at_most(kSteps);
  for (uint32_t i = 0; i < n_steps; ++i) {
    assert_ok(weir_session_step(session.get(), token(kPrompt + i)));
    run.logits.push_back(logits_of(session));
    if (setup.device == test_device() && std::strcmp(setup.policy, "quest") != 0 && i % 67 == 0) check_tables(session);
  }
  prefill(session, kPrompt + n_steps, 340);
  run.logits.push_back(logits_of(session));
  for (uint32_t i = 0; i < n_steps / 4; ++i) {
    assert_ok(weir_session_step(session.get(), token(kPrompt + n_steps + 340 + i)));
    run.logits.push_back(logits_of(session));
  }
  run.stats = stats_of(session);
  if (setup.device == test_device() && std::strcmp(setup.policy, "quest") != 0) check_tables(session);
  return run;
}

void assert_same(const Run& a, const Run& b, const char* what) {
  assert_int_equal(a.logits.size(), b.logits.size());
  for (size_t i = 0; i < a.logits.size(); ++i) {
    if (std::memcmp(a.logits[i].data(), b.logits[i].data(), a.logits[i].size() * sizeof(float)) != 0)
      fail_msg("%s: logits %zu of %zu differ", what, i, a.logits.size());
  }
}

// The worst distance in units of the logits' root mean square, and the mean.
void report_distance(const Run& a, const Run& b, double& worst, double& mean) {
  worst = mean = 0.0;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    const double apart =
        logits_apart(a.logits[i].data(), b.logits[i].data(), static_cast<uint32_t>(a.logits[i].size()));
    worst = std::max(worst, apart);
    mean += apart / static_cast<double>(a.logits.size());
  }
}

// When all wanted pages come back and only those are attended, neither the pool nor the store's parts matter.
void recall__is_the_same_in_any_pool(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  const Run want = run(f, {"arkvale", kTop, 9 * 16});
  assert_true(want.stats.pages_recalled > 0 && want.stats.pages_dropped == 0);
  assert_int_equal(want.stats.pages_spilled, want.stats.pages_evicted);
  for (const uint32_t budget : {9 * 16, 12 * 16, 30 * 16}) {
    for (const uint64_t spill_bytes : {uint64_t{0}, uint64_t{24} << 20, uint64_t{200} << 20}) {
      const Run got = run(f, {"arkvale", kTop, budget, spill_bytes});
      assert_same(got, want, "another pool or store");
    }
  }
  // Quest never lets a page go. Its kernels add up in another order.
  const Run quest = run(f, {"quest", kQuest, 8 * 16});
  double worst = 0.0, mean = 0.0;
  report_distance(want, quest, worst, mean);
  print_message("beside quest on the GPU: worst %.4f, mean %.5f of the logits' size\n", worst, mean);
  assert_true(mean < 0.02);
  close_gpu_fixture(&f);
}

struct Choice {
  const char* policy;
  Options options;
};

void recall__is_that_of_the_cpu(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  static const Choice kChoices[] = {
      {"arkvale", {{"digest", "minmax"}}},
      {"arkvale", {{"digest", "cuboid_mean"}, {"agg", "max_raw"}}},
      {"arkvale", {{"digest", "minmax"}, {"attend", "top"}, {"recall_pages", "3"}}},
      {"arkvale", {{"digest", "mean_std"}, {"recall_pages", "2"}}},
      {"arkvale", {{"digest", "sphere_mean"}}},
      {"arkvale", {{"digest", "sketch"}}},
      {"arkvale", {{"digest", "minmax"}, {"recall_from", "9"}, {"recall_pages", "0"}}},
      {"raas", {{"digest", "minmax"}, {"recall", "on"}}},
      {"hybrid", {{"digest", "minmax"}, {"recall", "on"}}},
      {"hybrid", {{"digest", "minmax"}, {"recall", "on"}, {"rho", "0.25"}, {"attend", "top"}}},
      {"hybrid", {{"digest", "minmax"}, {"recall", "on"}, {"rho", "0.7"}, {"recall_pages", "0"}}}};
  for (const Choice& c : kChoices) {
    const Run gpu = run(f, {c.policy, c.options, 256}),
              cpu = run(f, {c.policy, c.options, 256, 0, 64, WEIR_DEVICE_CPU});
    double worst = 0.0, mean = 0.0;
    report_distance(gpu, cpu, worst, mean);
    print_message("%-8s %-12s %-12s: worst %.4f, mean %.5f; recalled %llu, on the CPU %llu; evicted %llu, %llu\n",
                  c.policy, c.options.empty() ? "" : c.options[0].key, c.options.empty() ? "" : c.options[0].value,
                  worst, mean, static_cast<unsigned long long>(gpu.stats.pages_recalled),
                  static_cast<unsigned long long>(cpu.stats.pages_recalled),
                  static_cast<unsigned long long>(gpu.stats.pages_evicted),
                  static_cast<unsigned long long>(cpu.stats.pages_evicted));
    assert_true(mean < 0.05);
    const auto g = static_cast<double>(gpu.stats.pages_recalled), k = static_cast<double>(cpu.stats.pages_recalled);
    assert_true(g > 0 && std::fabs(g - k) < 0.05 * k);
    assert_int_equal(gpu.stats.pages_spilled, gpu.stats.pages_evicted);
    assert_int_equal(gpu.stats.n_tokens, cpu.stats.n_tokens);
  }
  close_gpu_fixture(&f);
}

// A fork goes on like the session that it was made from, and a rewind leads back to where a session was.
void recall__forks_and_rewinds(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  const Options none;
  for (const Setup& setup : {Setup{"arkvale", kTop, 9 * 16}, Setup{"arkvale", none, 160, uint64_t{2} << 20}}) {
    const bool is_exact = &setup.options == &kTop;  // else which pages are in the pool matters, and a rewind keeps them
    const Session parent = open_session(f, setup), once = open_session(f, setup);
    for (const Session* s : {&parent, &once}) prefill(*s, 0, kPrompt);
    const uint32_t n = steps_at_most(200);
    for (uint32_t i = 0; i < n; ++i) {
      for (const Session* s : {&parent, &once}) assert_ok(weir_session_step(s->get(), token(kPrompt + i)));
    }
    weir_session* handle = nullptr;
    assert_ok(weir_session_fork(parent.get(), &handle));
    const Session fork(handle);
    for (uint32_t i = 0; i < 60; ++i) {
      assert_ok(weir_session_step(parent.get(), token(i * 7)));
      for (const Session* s : {&fork, &once}) assert_ok(weir_session_step(s->get(), token(i * 3)));
      const std::vector<float> a = logits_of(fork), b = logits_of(once);
      if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) fail_msg("the fork differs in step %u", i);
    }
    for (const Session* s : {&parent, &fork}) check_tables(*s);
    for (const uint32_t cut : {kPrompt + n + 30, kPrompt + n}) {
      assert_ok(weir_session_rewind(parent.get(), cut, 0));
      check_tables(parent);
    }
    for (uint32_t i = 0; i < 60 && is_exact; ++i) assert_ok(weir_session_step(parent.get(), token(i * 3)));
    const std::vector<float> a = is_exact ? logits_of(parent) : std::vector<float>(), b = logits_of(once);
    if (is_exact && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) fail_msg("after a rewind");
  }
  close_gpu_fixture(&f);
}

// After a rewind some of the pages that are left are cold, even where they are no more than a step wants.
void recall__few_pages_after_a_rewind(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  constexpr uint32_t kLeft = 8 * 16;
  for (const uint32_t budget : {9 * 16, 12 * 16}) {
    const Session back = open_session(f, {"arkvale", kTop, budget}), never = open_session(f, {"arkvale", kTop, budget});
    prefill(back, 0, kPrompt);
    const uint32_t n_steps = steps_at_most(300);
    for (uint32_t i = 0; i < n_steps; ++i) assert_ok(weir_session_step(back.get(), token(kPrompt + i)));
    assert_ok(weir_session_rewind(back.get(), kLeft, 0));
    assert_true(stats_of(back).pages_cold > 0);
    prefill(never, 0, kLeft);
    for (uint32_t i = 0; i < 100; ++i) {
      for (const Session* s : {&back, &never}) assert_ok(weir_session_step(s->get(), token(i * 3)));
      const std::vector<float> a = logits_of(back), b = logits_of(never);
      if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) fail_msg("step %u differs", i);
    }
    check_tables(back);
  }
  close_gpu_fixture(&f);
}

// A prompt that is much longer than the pool attends its cold pages, too.
void recall__prompts_beyond_the_pool(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  const Options none;
  for (const uint32_t budget : {128u, 192u, 512u}) {
    const Session want = open_session(f, {"dense", none, 0}), got = open_session(f, {"arkvale", none, budget});
    for (const Session* s : {&want, &got}) {
      prefill(*s, 0, 900);
      prefill(*s, 900, 28);
    }
    const std::vector<float> a = logits_of(want), b = logits_of(got);
    const double apart = logits_apart(a.data(), b.data(), static_cast<uint32_t>(a.size()));
    print_message("a prompt of 928 tokens in a pool of %u: %.5f from dense\n", budget, apart);
    assert_true(apart < 0.02);
    assert_true(stats_of(got).pages_evicted > 0);
    check_tables(got);
  }
  close_gpu_fixture(&f);
}

// Steps for which the host is always too slow are repeated until the pages are there.
void recall__late_pages_change_nothing(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  for (const Options& options : {Options{}, kTop, Options{{"agg", "max_raw"}}, Options{{"digest", "mean_std"}}}) {
    const Setup setup = {"arkvale", options, 9 * 16, uint64_t{4} << 20};
    const Run want = run(f, setup);
    f.runtime->devices.set_recall_late_ns(1);
    const Run got = run(f, setup);
    f.runtime->devices.set_recall_late_ns(500'000'000);
    assert_same(got, want, "late pages");
    assert_int_equal(got.stats.pages_evicted, want.stats.pages_evicted);
    assert_int_equal(got.stats.pages_recalled, want.stats.pages_recalled);
    assert_int_equal(got.stats.pages_dropped, want.stats.pages_dropped);
  }
  close_gpu_fixture(&f);
}

// A store that is too small loses pages; lost pages are not attended, and the session goes on.
void recall__full_stores_drop_pages(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  const Options none;
  const Run once = run(f, {"arkvale", none, 128, 400 << 10}), again = run(f, {"arkvale", none, 128, 400 << 10});
  assert_true(once.stats.pages_dropped > 0);
  assert_same(once, again, "the same again");
  assert_int_equal(once.stats.pages_dropped, again.stats.pages_dropped);
  for (const std::vector<float>& logits : once.logits) {
    for (const float x : logits) assert_true(std::isfinite(x));
  }
  close_gpu_fixture(&f);
}

// Sessions step together as they do alone, one of them late.
void recall__in_joint_steps(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  const Options none;
  const Setup setups[] = {{"arkvale", none, 128}, {"arkvale", kTop, 9 * 16, uint64_t{4} << 20}, {"raas", none, 256}};
  for (const uint64_t late_ns : {uint64_t{500'000'000}, uint64_t{1}}) {
    f.runtime->devices.set_recall_late_ns(late_ns);
    std::vector<Session> alone, together;
    for (const Setup& setup : setups) {
      for (auto* list : {&alone, &together}) {
        list->push_back(open_session(f, setup));
        prefill(list->back(), 0, kPrompt);
      }
    }
    weir_session* const handles[] = {together[0].get(), together[1].get(), together[2].get()};
    for (uint32_t i = 0; i < steps_at_most(200); ++i) {
      const weir_token tokens[] = {token(kPrompt + i), token(kPrompt + i + 7), token(kPrompt + i + 9)};
      assert_ok(weir_step_many(handles, tokens, 3));
      for (uint32_t s = 0; s < 3; ++s) {
        assert_ok(weir_session_step(alone[s].get(), tokens[s]));
        const std::vector<float> a = logits_of(alone[s]), b = logits_of(together[s]);
        if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0)
          fail_msg("session %u differs in step %u, late after %llu ns", s, i, static_cast<unsigned long long>(late_ns));
      }
    }
    for (uint32_t s = 0; s < 2; ++s) check_tables(together[s]);
  }
  f.runtime->devices.set_recall_late_ns(500'000'000);
  close_gpu_fixture(&f);
}

// A prompt that is cancelled is as if it had not been.
void recall__cancelled_prompts(void**) {
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  const Setup setup = {"arkvale", kTop, 9 * 16};
  const Session want = open_session(f, setup), got = open_session(f, setup);
  for (const Session* s : {&want, &got}) prefill(*s, 0, kPrompt);
  const weir_progress_fn stop = [](void* user, const weir_progress_info*) -> weir_status {
    return --*static_cast<int*>(user) < 0 ? WEIR_ERR_CANCELLED : WEIR_OK;
  };
  std::vector<weir_token> tokens;
  for (uint32_t i = 0; i < 300; ++i) tokens.push_back(token(i * 3));
  for (uint32_t i = 0; i < steps_at_most(120); ++i) {
    if (i % 17 == 5) {
      int n_chunks = static_cast<int>(i % 5);
      assert_int_equal(weir_session_prefill(got.get(), tokens.data(), 300, stop, &n_chunks), WEIR_ERR_CANCELLED);
      check_tables(got);
    }
    for (const Session* s : {&want, &got}) assert_ok(weir_session_step(s->get(), token(kPrompt + i)));
    const std::vector<float> a = logits_of(want), b = logits_of(got);
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) fail_msg("logits differ in step %u", i);
  }
  close_gpu_fixture(&f);
}

}  // namespace

int main() {
  // Bounds are about near ties. And a chunk whose pages come in several parts is attended without matrices, so that its
  // bits would depend on the pool.
  weir::test::hide_matrices();
  const CMUnitTest tests[] = {
      cmocka_unit_test(recall__is_the_same_in_any_pool),  cmocka_unit_test(recall__is_that_of_the_cpu),
      cmocka_unit_test(recall__prompts_beyond_the_pool),  cmocka_unit_test(recall__late_pages_change_nothing),
      cmocka_unit_test(recall__full_stores_drop_pages),   cmocka_unit_test(recall__in_joint_steps),
      cmocka_unit_test(recall__cancelled_prompts),        cmocka_unit_test(recall__forks_and_rewinds),
      cmocka_unit_test(recall__few_pages_after_a_rewind),
  };
  return cmocka_run_group_tests_name("device/recall", tests, nullptr, nullptr);
}
