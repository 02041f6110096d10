// cuda: policies on the GPU keep the pages that they keep on the CPU. Both devices are fed the same tokens of a real
// answer. The page tables of all streams are compared at several steps, layer by layer, counting only pages that can
// leave. Policies that look at positions alone must give equal tables; where scores decide, near ties may go either
// way. What the bounds can distinguish is tested on the CPU alone: they refuse a session without stamps, also if only
// one layer lacks them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "api/handles.h"
#include "tests/cuda/problem_tokens.h"
#include "tests/policy/every_policy.h"

namespace {

constexpr uint32_t kSteps = 600, kEvery = 20;
constexpr uint32_t kBudget = 384;  // 24 pages
constexpr uint32_t kContext = 2048;

// Minimum fractions, per layer: of the pages that can leave, those that both sessions hold; and of these, those whose
// stamps are equal.
struct Bounds {
  double pages, stamps;
};
constexpr Bounds kExact = {1.0, 1.0};
constexpr Bounds kNearTies = {0.97, 0.97};
// tova after a prompt that was cut: which pages stay goes by the weights of one query, and every stream of a layer
// drops the same page, so that one near tie is in all tables that follow. Measured on an H200: 0.945 of the pages.
constexpr Bounds kNearTiesAfterCut = {0.92, 0.97};
// Stamps that count marks: every query marks the page of the least mean weight. Near ties are common there, and one
// other mark makes a count unequal. Measured on an H200: 0.94 of the stamps, and 0.55 after a prompt that was cut. The
// control below, which never marks, has at most 0.49, and 0.29 after a cut.
constexpr Bounds kMarks = {0.97, 0.9};
constexpr Bounds kMarksAfterCut = {0.92, 0.5};

struct Row {
  variant v;
  Bounds bounds;
  std::optional<Bounds> after_cut = {};  // with a prompt that is longer than the budget, if other ones

  const Bounds& of(const char* family) const {
    return after_cut && std::strcmp(family, "facts") == 0 ? *after_cut : bounds;
  }
};

const Row kRows[] = {
    {{"dense", {}, 0}, kExact},
    {{"sink", {}, 0}, kExact},
    {{"sink", {{"positions", "abs"}}, 1}, kExact},
    {{"sink", {{"exact_mask", "true"}, {"window", "200"}}, 2}, kExact},
    {{"quest", {{"skip_layers", "0"}}, 1}, kExact},
    {{"quest", {{"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 3}, kExact},
    {{"random", {}, 0}, kExact},
    {{"random", {{"pin_prompt", "false"}, {"seed", "4294967295"}}, 2}, kExact},
    // Nothing is stamped after its page was opened: the oldest page leaves.
    {{"raas", {{"alpha", "1"}}, 1}, kExact},
    {{"raas", {}, 0}, kNearTies},
    {{"raas", {{"alpha", "0.1"}, {"protect_recent", "4"}}, 2}, kNearTies},
    {{"raas", {{"r", "0.5"}, {"protect_recent", "0"}}, 2}, kNearTies},
    {{"raas", {{"pin_prompt", "false"}, {"stamp_source", "digest"}}, 2}, kNearTies},
    {{"raas", {{"stamp_source", "digest"}, {"digest", "cuboid_mean"}}, 2}, kNearTies},
    {{"raas", {{"prompt", "snapkv"}, {"prompt_budget", "160"}}, 2}, kNearTies},
    {{"h2o", {{"skip_layers", "0"}}, 1}, kNearTies},
    {{"h2o", {{"score", "norm_sum"}, {"init", "window"}}, 2}, kNearTies},
    {{"tova", {{"skip_layers", "0"}}, 1}, kNearTies, kNearTiesAfterCut},
    {{"tova", {{"scope", "stream"}, {"prompt", "snapkv"}}, 2}, kNearTies},
    {{"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 2}, kMarks, kMarksAfterCut},
    {{"hybrid", {}, 0}, kNearTies},
    {{"hybrid", {{"skip_layers", "0"}, {"alpha", "0.1"}}, 2}, kNearTies},
};

// What two sessions' tables have in common in one layer, over all steps that were compared.
struct LayerCounts {
  uint64_t pages = 0, common = 0, equal_stamps = 0;
  double part_common() const { return pages == 0 ? 1.0 : static_cast<double>(common) / static_cast<double>(pages); }
  double part_stamps() const {
    return common == 0 ? 1.0 : static_cast<double>(equal_stamps) / static_cast<double>(common);
  }
};

bool can_leave(const weir::StreamView& s, uint32_t row) {
  return (s.flags[row] & weir::kPageStays) == 0 && row + 1 < s.n_pages;
}

void compare_layer(const weir::KvCache& a, const weir::KvCache& b, uint32_t layer, LayerCounts& counts) {
  const uint32_t n_kv_heads = a.shape().n_kv_heads;
  for (uint32_t i = layer * n_kv_heads; i < (layer + 1) * n_kv_heads; ++i) {
    const weir::StreamView x = a.stream(i), y = b.stream(i);
    for (uint32_t row = 0; row < x.n_pages; ++row) {
      if (!can_leave(x, row)) continue;
      ++counts.pages;
      const uint32_t* found = std::lower_bound(y.first_pos, y.first_pos + y.n_pages, x.first_pos[row]);
      if (found == y.first_pos + y.n_pages || *found != x.first_pos[row]) continue;
      ++counts.common;
      counts.equal_stamps += x.stamp[row] == y.stamp[found - y.first_pos] ? 1 : 0;
    }
  }
}

// The first layer that is outside the bounds; the number of layers if none is.
uint32_t first_outside(const std::vector<LayerCounts>& layers, const Bounds& bounds) {
  const auto outside = [&](const LayerCounts& c) {
    return c.part_common() < bounds.pages || c.part_stamps() < bounds.stamps;
  };
  return static_cast<uint32_t>(std::find_if(layers.begin(), layers.end(), outside) - layers.begin());
}

// Checks what must hold for any table.
void check_tables(const weir::KvCache& kv) {
  std::vector<bool> used(kv.shape().n_slots());
  for (uint32_t i = 0; i < kv.shape().n_streams(); ++i) {
    const weir::StreamView s = kv.stream(i);
    assert_true(s.n_pages <= s.capacity);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      assert_true(row == 0 || s.first_pos[row - 1] < s.first_pos[row]);
      assert_true(s.slots[row] < used.size() && !used[s.slots[row]]);
      used[s.slots[row]] = true;
      assert_int_equal(s.len[row], std::min(weir::kPageTokens, kv.n_tokens() - s.first_pos[row]));
    }
  }
}

struct Close {
  void operator()(weir_session* session) const { weir_session_destroy(session); }
};
using Session = std::unique_ptr<weir_session, Close>;

Session open_session(const fixture& f, const variant& v, int32_t device) {
  weir_session_options options = options_of(&v, device, kBudget, kContext);
  if (strcmp(v.policy, "dense") == 0) options.budget_tokens = 0;  // with dense a budget limits the context
  weir_session* session = nullptr;
  assert_ok(weir_session_create(f.model, &options, &session));
  return Session(session);
}

const weir::KvCache& tables_of(const Session& session) {
  assert_true(session->host_tables().ok());
  return session->kv();
}

// Feeds the same tokens to all sessions and calls look() every kEvery steps.
template <class Look>
void feed(const std::vector<Session>& sessions, const weir::test::ProblemTokens& text, const Look& look) {
  for (const Session& s : sessions)
    assert_ok(weir_session_prefill(s.get(), text.prompt.data(), text.prompt.size(), nullptr, nullptr));
  look();
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (const Session& s : sessions) assert_ok(weir_session_step(s.get(), text.answer[step]));
    if (step % kEvery == kEvery - 1) look();
  }
}

// A problem with a short prompt, so that most of the budget's pages can leave, or one with a long prompt.
weir::test::ProblemTokens text_of(const fixture& f, const char* family) {
  weir_cli::ProblemOptions options;
  options.family = family;
  options.steps = 60;
  weir::test::ProblemTokens text = weir::test::problem_tokens(f.model, options);
  assert_true(text.answer.size() >= kSteps);
  assert_true(text.prompt.size() + kSteps <= kContext);
  return text;
}

void assert_same_counters(const Session& a, const Session& b) {
  weir_session_stats stats[2] = {WEIR_SESSION_STATS_INIT, WEIR_SESSION_STATS_INIT};
  assert_ok(weir_session_get_stats(a.get(), &stats[0]));
  assert_ok(weir_session_get_stats(b.get(), &stats[1]));
  assert_int_equal(stats[0].pages_resident, stats[1].pages_resident);
  assert_int_equal(stats[0].pages_resident_max, stats[1].pages_resident_max);
  assert_int_equal(stats[0].pages_evicted, stats[1].pages_evicted);
  assert_int_equal(stats[0].pages_attended, stats[1].pages_attended);
  assert_int_equal(stats[0].n_tokens, stats[1].n_tokens);
}

bool check_row(const fixture& f, const Row& row, const char* family, const weir::test::ProblemTokens& text) {
  std::vector<Session> sessions;
  for (int32_t device : {WEIR_DEVICE_CPU, WEIR_DEVICE_CUDA}) sessions.push_back(open_session(f, row.v, device));
  std::vector<LayerCounts> layers(tables_of(sessions[0]).shape().n_layers);
  feed(sessions, text, [&] {
    const weir::KvCache &cpu = tables_of(sessions[0]), &gpu = tables_of(sessions[1]);
    check_tables(cpu);
    check_tables(gpu);
    assert_same_counters(sessions[0], sessions[1]);
    for (uint32_t layer = 0; layer < layers.size(); ++layer) compare_layer(cpu, gpu, layer, layers[layer]);
  });
  const bool ok = first_outside(layers, row.of(family)) == layers.size();
  LayerCounts all;
  double least_common = 1.0, least_stamps = 1.0;
  for (const LayerCounts& c : layers) {
    all.pages += c.pages, all.common += c.common, all.equal_stamps += c.equal_stamps;
    least_common = std::min(least_common, c.part_common());
    least_stamps = std::min(least_stamps, c.part_stamps());
  }
  std::printf("%-6s %-60s %8llu %9.2f %9.2f %9.2f %9.2f%s\n", family, describe(&row.v),
              static_cast<unsigned long long>(all.pages), 100.0 * all.part_common(), 100.0 * least_common,
              100.0 * all.part_stamps(), 100.0 * least_stamps, ok ? "" : "   OUTSIDE");
  return ok;
}

void pages__as_on_the_cpu(void**) {
  ASSERT_EVERY_POLICY(kRows, v.policy);  // on machines without a GPU, too
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  bool ok = true;
  std::printf("%-6s %-60s %8s %9s %9s %9s %9s\n", "text", "policy", "pages", "common %", "least", "stamps %", "least");
  for (const char* family : {"base", "facts"}) {
    const weir::test::ProblemTokens text = text_of(f, family);
    for (const Row& row : kRows) ok = check_row(f, row, family, text) && ok;
  }
  std::fflush(stdout);
  close_gpu_fixture(&f);
  assert_true(ok);
}

// Under a sanitizer, steps that say something about numbers and nothing about memory are left out.
#ifndef WEIR_INTERNAL_SANITIZED
// Tests the comparison with CPU sessions: one under a policy, its double, and one under a control that stamps
// otherwise.
void check_bounds_tell(const fixture& f, const char* family, const variant& v, const variant& control,
                       const Bounds& bounds) {
  std::vector<Session> sessions;
  for (const variant* one : {&v, &v, &control}) sessions.push_back(open_session(f, *one, WEIR_DEVICE_CPU));
  const auto n_layers = tables_of(sessions[0]).shape().n_layers;
  std::vector<LayerCounts> same(n_layers), other(n_layers);
  feed(sessions, text_of(f, family), [&] {
    for (uint32_t layer = 0; layer < n_layers; ++layer) {
      compare_layer(tables_of(sessions[0]), tables_of(sessions[1]), layer, same[layer]);
      compare_layer(tables_of(sessions[0]), tables_of(sessions[2]), layer, other[layer]);
    }
  });
  assert_int_equal(first_outside(same, kExact), n_layers);
  std::printf("%s, %s\n", family, describe(&v));
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    std::printf("layer %u of the control, %s: %.2f %% of the pages in common, %.2f %% of the stamps equal\n", layer,
                describe(&control), 100.0 * other[layer].part_common(), 100.0 * other[layer].part_stamps());
    std::vector<LayerCounts> mutant = same;  // only this layer is the control's
    mutant[layer] = other[layer];
    assert_int_equal(first_outside(mutant, bounds), layer);
  }
}

void pages__bounds_tell_stamps_from_their_absence(void**) {
  fixture f;
  open_gpu_fixture(&f);
  check_bounds_tell(f, "base", {"raas", {{"alpha", "0.1"}, {"protect_recent", "4"}}, 2},
                    {"raas", {{"alpha", "1"}, {"protect_recent", "4"}}, 2}, kNearTies);
  const variant by_token = {"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 2},
                by_page = {"tova", {{"skip_layers", "0"}}, 1};
  check_bounds_tell(f, "base", by_token, by_page, kMarks);
  check_bounds_tell(f, "facts", by_token, by_page, kMarksAfterCut);
  close_gpu_fixture(&f);
}
#endif

}  // namespace

int main() {
  const CMUnitTest tests[] = {
#ifndef WEIR_INTERNAL_SANITIZED
      cmocka_unit_test(pages__bounds_tell_stamps_from_their_absence),
#endif
      cmocka_unit_test(pages__as_on_the_cpu),
  };
  return cmocka_run_group_tests_name("cuda_pages", tests, nullptr, nullptr);
}
