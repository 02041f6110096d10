// cuda: policies on the GPU keep the pages that they keep on the CPU. Both devices are fed the same tokens of a real
// answer. Rounding differs between devices, and where scores decide, a near tie may go either way and change all that
// follows. So there are two comparisons:
//
// Each decision by itself: after every prompt chunk and every step the CPU's session takes over the stamps and scores
// of the GPU's. Then both decide from the same numbers: page tables must be equal all the time. What each step added to
// stamps and scores is compared before it is taken over.
//
// All decisions together: nothing is taken over, the page tables are compared every 20 steps. Only with a short prompt:
// when a long one is cut, one near tie is a page in 23 for hundreds of steps.
//
// Only pages that can leave are counted, layer by layer. What the bounds can distinguish is tested on the CPU alone:
// they refuse sessions that stamp or score otherwise, also if only one layer does.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "api/handles.h"
#include "tests/cuda/problem_tokens.h"
#include "tests/policy/every_policy.h"

namespace {

constexpr uint32_t kSteps = 600, kEvery = 20;
constexpr uint32_t kBudget = 384;  // 24 pages
constexpr uint32_t kContext = 2048;

// Minimum fractions, per layer: of the pages that can leave, those that both sessions hold; of the stamps that a step
// changed, those that it changed equally in both sessions; and of the scores, those that are within kScoreDistance.
struct Bounds {
  double pages, stamps, scores;
};
// Measured on an H200, the worst layer of all rows: all pages, 98.1 % of the stamps, 97.3 % of the scores.
constexpr Bounds kExact = {1.0, 1.0, 1.0};
constexpr Bounds kScored = {1.0, 1.0, 0.97};  // nothing is stamped after its page was opened
constexpr Bounds kNearTies = {1.0, 0.97, 0.97};
// Keys rounded to bf16 differ now and then, and a digest is of few of them; there are few stamps, too. Measured: 94.4 %
// of the stamps, 97.0 % of the scores.
constexpr Bounds kDigests = {1.0, 0.92, 0.95};
constexpr double kTogether = 0.97;      // pages, when nothing is taken over. Measured: 99.4 %
constexpr double kScoreDistance = 0.1;  // relative to the larger one

struct Row {
  variant v;
  Bounds bounds;
};

const Row kRows[] = {
    {{"dense", {}, 0}, kExact},
    {{"sink", {}, 0}, kExact},
    {{"sink", {{"positions", "abs"}}, 1}, kExact},
    {{"sink", {{"exact_mask", "true"}, {"window", "200"}}, 2}, kExact},
    {{"quest", {{"skip_layers", "0"}}, 1}, kScored},
    {{"quest", {{"skip_layers", "0"}, {"agg", "qhead"}, {"digest", "mean_std"}}, 3}, kScored},
    {{"random", {}, 0}, kExact},
    {{"random", {{"pin_prompt", "false"}, {"seed", "4294967295"}}, 2}, kExact},
    // The oldest page leaves.
    {{"raas", {{"alpha", "1"}}, 1}, kScored},
    {{"raas", {}, 0}, kNearTies},
    {{"raas", {{"alpha", "0.1"}, {"protect_recent", "4"}}, 2}, kNearTies},
    {{"raas", {{"r", "0.5"}, {"protect_recent", "0"}}, 2}, kNearTies},
    {{"raas", {{"pin_prompt", "false"}, {"stamp_source", "digest"}}, 2}, kDigests},
    {{"raas", {{"stamp_source", "digest"}, {"digest", "cuboid_mean"}}, 2}, kDigests},
    {{"raas", {{"prompt", "snapkv"}, {"prompt_budget", "160"}}, 2}, kNearTies},
    {{"h2o", {{"skip_layers", "0"}}, 1}, kNearTies},
    {{"h2o", {{"score", "norm_sum"}, {"init", "window"}}, 2}, kNearTies},
    {{"tova", {{"skip_layers", "0"}}, 1}, kNearTies},
    {{"tova", {{"scope", "stream"}, {"prompt", "snapkv"}}, 2}, kNearTies},
    {{"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 2}, kNearTies},
    {{"hybrid", {}, 0}, kNearTies},
    {{"hybrid", {{"skip_layers", "0"}, {"alpha", "0.1"}}, 2}, kNearTies},
};

// One page of a table, as it was when the table was copied.
struct Page {
  uint32_t first_pos, stamp;
  float score;
};
using Table = std::vector<Page>;
using Tables = std::vector<Table>;  // of all streams

Tables copy_of(const weir::KvCache& kv) {
  Tables tables(kv.shape().n_streams());
  for (uint32_t i = 0; i < tables.size(); ++i) {
    const weir::StreamView s = kv.stream(i);
    for (uint32_t row = 0; row < s.n_pages; ++row)
      tables[i].push_back({s.first_pos[row], s.stamp[row], s.last_score[row]});
  }
  return tables;
}

const Page* find(const Table& table, uint32_t first_pos) {
  const auto found = std::lower_bound(table.begin(), table.end(), first_pos,
                                      [](const Page& page, uint32_t pos) { return page.first_pos < pos; });
  return found == table.end() || found->first_pos != first_pos ? nullptr : &*found;
}

double part(uint64_t n, uint64_t of) { return of == 0 ? 1.0 : static_cast<double>(n) / static_cast<double>(of); }

// What two sessions have in common in one layer, over all comparisons.
struct LayerCounts {
  uint64_t pages = 0, common = 0;
  uint64_t stamps = 0, equal_stamps = 0;  // that a step changed in one of the sessions at least
  uint64_t scores = 0, close_scores = 0;
  bool is_inside(const Bounds& b) const {
    return part(common, pages) >= b.pages && part(equal_stamps, stamps) >= b.stamps &&
           part(close_scores, scores) >= b.scores;
  }
};

bool can_leave(const weir::StreamView& s, uint32_t row) {
  return (s.flags[row] & weir::kPageStays) == 0 && row + 1 < s.n_pages;
}

// Counts the pages of `s` that can leave and those that the other table has, too. Returns whether all pages are equal.
bool compare_pages(const weir::StreamView& s, const Table& other, LayerCounts& counts) {
  bool equal = s.n_pages == other.size();
  for (uint32_t row = 0; row < s.n_pages; ++row) {
    const bool found = find(other, s.first_pos[row]) != nullptr;
    equal = equal && found;
    if (!can_leave(s, row)) continue;
    ++counts.pages;
    counts.common += found ? 1 : 0;
  }
  return equal;
}

// Compares the sessions decision by decision: what each step adds to stamps and scores, from equal ones on.
class StepByStep {
 public:
  // Scores that add up are compared by what a step adds.
  explicit StepByStep(const weir::KvCache& kv, bool scores_add_up)
      : layers(kv.shape().n_layers), before_(copy_of(kv)), in_step_(before_.size(), true), add_up_(scores_add_up) {}

  // Compares, then `kv` takes over the stamps and scores of `other` in all streams that hold the same pages.
  void look(const weir::KvCache& kv, const Tables& other) {
    const uint32_t n_kv_heads = kv.shape().n_kv_heads;
    for (uint32_t i = 0; i < other.size(); ++i) {
      const weir::StreamView s = kv.stream(i);
      LayerCounts& counts = layers[i / n_kv_heads];
      const bool equal = compare_pages(s, other[i], counts);
      for (uint32_t row = 0; equal && row < s.n_pages; ++row) {
        const Page* before = find(before_[i], s.first_pos[row]);
        if (in_step_[i] && before != nullptr && can_leave(s, row))
          compare_change(s, row, other[i][row], *before, counts);
        s.stamp[row] = other[i][row].stamp;
        s.last_score[row] = other[i][row].score;
      }
      in_step_[i] = equal;
    }
    before_ = other;
  }

  std::vector<LayerCounts> layers;

 private:
  void compare_change(const weir::StreamView& s, uint32_t row, const Page& other, const Page& before,
                      LayerCounts& counts) const {
    if (s.stamp[row] != before.stamp || other.stamp != before.stamp) {
      ++counts.stamps;
      counts.equal_stamps += s.stamp[row] == other.stamp ? 1 : 0;
    }
    const double from = add_up_ ? double{before.score} : 0.0, a = double{s.last_score[row]} - from,
                 b = double{other.score} - from, rounding = 1e-6 * std::fabs(from);
    ++counts.scores;
    counts.close_scores += std::fabs(a - b) <= kScoreDistance * std::max(std::fabs(a), std::fabs(b)) + rounding ? 1 : 0;
  }

  Tables before_;
  std::vector<bool> in_step_;  // by stream: the last look found equal pages
  bool add_up_;
};

// The first layer that is outside the bounds; the number of layers if none is.
uint32_t first_outside(const std::vector<LayerCounts>& layers, const Bounds& bounds) {
  const auto outside = [&](const LayerCounts& c) { return !c.is_inside(bounds); };
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

// Called before each chunk of a prompt, in which pages leave: `f` sees the tables as the chunk before left them.
template <class F>
weir_status prefill(const Session& session, const std::vector<weir_token>& tokens, F f) {
  const weir_progress_fn call = [](void* user, const weir_progress_info*) -> weir_status {
    (*static_cast<F*>(user))();
    return WEIR_OK;
  };
  return weir_session_prefill(session.get(), tokens.data(), tokens.size(), call, &f);
}

bool adds_up(const variant& v) { return strcmp(v.policy, "h2o") == 0; }

// Feeds the same tokens to both sessions, decision by decision.
std::vector<LayerCounts> feed_step_by_step(const Session& session, const Session& other, const variant& v,
                                           const weir::test::ProblemTokens& text) {
  StepByStep compared(session->kv(), adds_up(v));
  std::vector<Tables> chunks;
  assert_ok(prefill(other, text.prompt, [&] { chunks.push_back(copy_of(other->kv())); }));
  size_t n_chunks = 0;
  assert_ok(prefill(session, text.prompt, [&] {
    assert_true(n_chunks < chunks.size());
    compared.look(session->kv(), chunks[n_chunks++]);
  }));
  assert_int_equal(n_chunks, chunks.size());
  compared.look(session->kv(), copy_of(tables_of(other)));
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (const Session* s : {&session, &other}) assert_ok(weir_session_step(s->get(), text.answer[step]));
    compared.look(session->kv(), copy_of(tables_of(other)));
    if (step % kEvery == kEvery - 1) check_tables(other->kv());
  }
  assert_same_counters(session, other);
  return compared.layers;
}

// Feeds the same tokens to both sessions, all decisions together.
std::vector<LayerCounts> feed_together(const Session& session, const Session& other,
                                       const weir::test::ProblemTokens& text) {
  std::vector<LayerCounts> layers(session->kv().shape().n_layers);
  const auto look = [&] {
    const Tables tables = copy_of(tables_of(other));
    check_tables(session->kv());
    check_tables(other->kv());
    assert_same_counters(session, other);
    for (uint32_t i = 0; i < tables.size(); ++i)
      compare_pages(session->kv().stream(i), tables[i], layers[i / session->kv().shape().n_kv_heads]);
  };
  for (const Session* s : {&session, &other})
    assert_ok(weir_session_prefill(s->get(), text.prompt.data(), text.prompt.size(), nullptr, nullptr));
  look();
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (const Session* s : {&session, &other}) assert_ok(weir_session_step(s->get(), text.answer[step]));
    if (step % kEvery == kEvery - 1) look();
  }
  return layers;
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

void report_head() {
  std::printf("%-14s %-52s %8s %6s %6s %8s %6s %6s %8s %6s %6s\n", "text", "policy", "pages", "equal%", "least",
              "stamps", "equal%", "least", "scores", "close%", "least");
}

bool report(const char* text, const variant& v, const std::vector<LayerCounts>& layers, const Bounds& bounds) {
  LayerCounts all;
  double least[3] = {1.0, 1.0, 1.0};
  for (const LayerCounts& c : layers) {
    all.pages += c.pages, all.common += c.common;
    all.stamps += c.stamps, all.equal_stamps += c.equal_stamps;
    all.scores += c.scores, all.close_scores += c.close_scores;
    least[0] = std::min(least[0], part(c.common, c.pages));
    least[1] = std::min(least[1], part(c.equal_stamps, c.stamps));
    least[2] = std::min(least[2], part(c.close_scores, c.scores));
  }
  const bool ok = first_outside(layers, bounds) == layers.size();
  std::printf("%-14s %-52s", text, describe(&v));
  const uint64_t n[3] = {all.pages, all.stamps, all.scores}, same[3] = {all.common, all.equal_stamps, all.close_scores};
  for (int i = 0; i < 3; ++i)
    std::printf(" %8llu %6.2f %6.2f", static_cast<unsigned long long>(n[i]), 100.0 * part(same[i], n[i]),
                100.0 * least[i]);
  std::printf("%s\n", ok ? "" : "   OUTSIDE");
  return ok;
}

void pages__as_on_the_cpu(void**) {
  ASSERT_EVERY_POLICY(kRows, v.policy);  // on machines without a GPU, too
  NEED_GPU();
  fixture f;
  open_gpu_fixture(&f);
  bool ok = true;
  report_head();
  for (const char* family : {"base", "facts"}) {
    const weir::test::ProblemTokens text = text_of(f, family);
    const bool is_short = text.prompt.size() < kBudget / 2;
    for (const Row& row : kRows) {
      const auto open = [&](int32_t device) { return open_session(f, row.v, device); };
      const Session cpu = open(WEIR_DEVICE_CPU), gpu = open(WEIR_DEVICE_CUDA);
      ok = report(family, row.v, feed_step_by_step(cpu, gpu, row.v, text), row.bounds) && ok;
      if (!is_short) continue;
      const double pages = row.bounds.stamps < 1.0 ? kTogether : 1.0;
      const Session free_cpu = open(WEIR_DEVICE_CPU), free_gpu = open(WEIR_DEVICE_CUDA);
      ok = report("base, together", row.v, feed_together(free_cpu, free_gpu, text), {pages, 1.0, 1.0}) && ok;
    }
  }
  std::fflush(stdout);
  close_gpu_fixture(&f);
  assert_true(ok);
}

// Under a sanitizer, steps that say something about numbers and nothing about memory are left out.
#ifndef WEIR_INTERNAL_SANITIZED
// Tests the comparison with CPU sessions: one under a policy beside its double, and beside a control that each of the
// bounds refuses.
void check_bounds_tell(const fixture& f, const char* family, const variant& v, const variant& control,
                       std::initializer_list<Bounds> refuse) {
  const weir::test::ProblemTokens text = text_of(f, family);
  const auto run = [&](const variant& other) {
    return feed_step_by_step(open_session(f, v, WEIR_DEVICE_CPU), open_session(f, other, WEIR_DEVICE_CPU), v, text);
  };
  const std::vector<LayerCounts> same = run(v), other = run(control);
  const auto n_layers = static_cast<uint32_t>(same.size());
  assert_int_equal(first_outside(same, kExact), n_layers);
  report(family, v, same, kExact);
  report("  its control", control, other, kExact);
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    std::vector<LayerCounts> mutant = same;  // only this layer is the control's
    mutant[layer] = other[layer];
    for (const Bounds& bounds : refuse) assert_int_equal(first_outside(mutant, bounds), layer);
  }
}

void pages__bounds_tell_other_decisions(void**) {
  constexpr Bounds kPages = {1.0, 0.0, 0.0}, kStamps = {0.0, kDigests.stamps, 0.0},
                   kScores = {0.0, 0.0, kDigests.scores};
  fixture f;
  open_gpu_fixture(&f);
  const variant raas = {"raas", {{"alpha", "0.1"}, {"protect_recent", "4"}}, 2},
                never_stamps = {"raas", {{"alpha", "1"}, {"protect_recent", "4"}}, 2},
                digest_scores = {"raas", {{"alpha", "0.1"}, {"protect_recent", "4"}, {"stamp_source", "digest"}}, 3},
                by_token = {"tova", {{"skip_layers", "0"}, {"decide", "token"}}, 2},
                by_page = {"tova", {{"skip_layers", "0"}}, 1};
  report_head();
  check_bounds_tell(f, "base", raas, never_stamps, {kStamps});
  check_bounds_tell(f, "base", raas, digest_scores, {kStamps, kScores});
  for (const char* family : {"base", "facts"}) check_bounds_tell(f, family, by_token, by_page, {kPages, kStamps});
  close_gpu_fixture(&f);
}
#endif

}  // namespace

int main() {
  const CMUnitTest tests[] = {
#ifndef WEIR_INTERNAL_SANITIZED
      cmocka_unit_test(pages__bounds_tell_other_decisions),
#endif
      cmocka_unit_test(pages__as_on_the_cpu),
  };
  return cmocka_run_group_tests_name("cuda_pages", tests, nullptr, nullptr);
}
