// device: what quest selects and attends in one launch is what the CPU selects and attends. Small random models allow
// any groups, head dimensions, lengths and budgets. Both devices are fed the same tokens. The kernel does not keep its
// lists, so they are derived from the scores that it leaves in the tables. While both devices' scores lead to the same
// pages, their logits must agree; where they do not, the pages must be near ties. Lists too long for a prompt are
// compared within one device, with the launches that quest uses for lists per query head: if all heads have the same
// query, their lists agree. Recall in the one launch is compared with quest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "tests/device/device_module_test.h"
#include "tests/device/open_model.h"
#include "tests/device/random_model.h"

namespace {

using weir::StreamView;
using weir::test::distance;
using weir::test::logits_of;
using weir::test::OpenModel;
using weir::test::RandomModel;

constexpr uint32_t kMaxSteps = 40;
const uint32_t kSteps = steps_at_most(kMaxSteps);
constexpr uint32_t kMaxTokens = 10240;  // of a conversation that begins with a prompt

enum class Pins {
  kNone,
  kFew,  // three pages
  kMany  // nine pages, more than the budget
};

struct Case {
  const char* agg;
  uint32_t budget, sinks;  // pages
  uint32_t n_prompt;       // tokens
  Pins pins;
  const char* digest = "minmax";
};

struct Limits {
  double raw, z;  // of scores: relative to the largest, in standard deviations
  double logits;  // of steps with the same pages, relative to their root mean square
};

// The GPU's prefill is an f16 GEMM. Both sides round keys to 8 bits, and some of the GPU's keys round to the next
// number.
constexpr Limits kAcrossDevices = {4e-3, 0.03, 0.03};
// The same pages and queries, summed in another order.
constexpr Limits kWithinDevice = {1e-4, 0.01, 0.01};

struct Group {
  RandomModel model;
  std::vector<Case> cases;
};

// Prompts of 5, 17, 130 and 600 pages. Steps begin in an open page, or with a new page that exceeds the budget.
const Group kGroups[] = {
    {{"llama", 2, 2, 64, "f16", 1, kMaxTokens},
     {{"max_z", 2, 0, 75, Pins::kNone},
      {"mean_raw", 16, 3, 2075, Pins::kMany},
      {"max_raw", 64, 0, 9600, Pins::kFew},
      {"max_raw", 4, 0, 75, Pins::kNone, "cuboid_mean"},
      {"max_raw", 16, 3, 2075, Pins::kFew, "cuboid_mean"},
      {"max_z", 599, 3, 9600, Pins::kNone}}},
    {{"qwen3", 3, 1, 64, "f16", 1, kMaxTokens},
     {{"max_z", 4, 0, 272, Pins::kNone}, {"max_raw", 16, 3, 2075, Pins::kFew}, {"mean_raw", 2, 0, 9600, Pins::kNone}}},
    {{"llama", 8, 2, 128, "q8_0", 1, kMaxTokens},
     {{"max_z", 16, 3, 272, Pins::kNone},
      {"mean_raw", 64, 0, 2075, Pins::kNone},
      {"max_raw", 4, 0, 75, Pins::kNone},
      {"max_raw", 4, 0, 75, Pins::kNone, "cuboid_mean"},
      {"max_z", 16, 0, 2075, Pins::kNone, "cuboid_mean"},
      {"max_z", 4, 0, 2075, Pins::kMany}}},
    {{"qwen2", 8, 1, 128, "q8_0", 1, kMaxTokens},
     {{"max_z", 64, 3, 2075, Pins::kFew}, {"mean_raw", 4, 0, 75, Pins::kNone}, {"max_raw", 17, 0, 272, Pins::kNone}}},
    {{"qwen3", 8, 1, 64, "bf16", 1, kMaxTokens},
     {{"max_z", 16, 0, 9600, Pins::kFew},
      {"mean_raw", 129, 3, 2075, Pins::kNone},
      {"max_raw", 4, 0, 272, Pins::kMany}}},
    {{"llama", 3, 1, 128, "f16", 1, kMaxTokens},
     {{"max_z", 2, 0, 2075, Pins::kNone}, {"mean_raw", 16, 3, 272, Pins::kFew}}},
    {{"llama", 4, 1, 64, "f16", 2, kMaxTokens},
     {{"max_z", 4, 0, 272, Pins::kNone}, {"max_raw", 16, 0, 2075, Pins::kNone}}},
    // As many KV heads as require small clusters, and groups that are not powers of two.
    {{"llama", 8, 8, 64, "f16", 1, kMaxTokens},
     {{"max_z", 16, 0, 9600, Pins::kNone}, {"max_raw", 4, 0, 272, Pins::kNone}}},
    {{"llama", 16, 8, 128, "q8_0", 1, kMaxTokens}, {{"max_z", 16, 0, 2075, Pins::kFew}}},
    {{"qwen2", 5, 1, 64, "f16", 1, kMaxTokens}, {{"max_z", 16, 0, 2075, Pins::kNone}}},
    {{"llama", 12, 2, 64, "f16", 1, kMaxTokens}, {{"mean_raw", 16, 0, 2075, Pins::kNone}}},
    {{"qwen2", 7, 1, 128, "q8_0", 1, kMaxTokens},
     {{"max_z", 64, 3, 9600, Pins::kNone}, {"max_raw", 4, 0, 75, Pins::kNone}}},
    // Sinks in the one launch, and a soft cap, which it does not have.
    {{"llama", 8, 1, 64, "f16", 1, kMaxTokens, false, false, true},
     {{"max_raw", 4, 0, 272, Pins::kNone}, {"max_z", 16, 3, 2075, Pins::kFew, "cuboid_mean"}}},
    {{"qwen3", 6, 2, 128, "f16", 1, kMaxTokens, false, false, true}, {{"mean_raw", 4, 0, 272, Pins::kNone}}},
    {{"llama", 4, 1, 64, "f16", 1, kMaxTokens, false, false, true, 0.25f}, {{"max_raw", 4, 0, 272, Pins::kNone}}},
    // Heads of other sizes, whose layers take three launches and more.
    {{"llama", 4, 1, 256, "f16", 1, kMaxTokens},
     {{"max_z", 4, 0, 272, Pins::kNone}, {"max_raw", 16, 3, 2075, Pins::kFew, "cuboid_mean"}}},
    {{"qwen3", 12, 1, 96, "f16", 1, kMaxTokens},
     {{"max_raw", 4, 0, 272, Pins::kNone}, {"mean_raw", 16, 3, 2075, Pins::kFew, "cuboid_mean"}}},
    {{"llama", 8, 2, 24, "f16", 1, kMaxTokens}, {{"max_raw", 4, 0, 272, Pins::kNone}}},
    {{"qwen2", 4, 2, 64, "f16", 1, kMaxTokens, true},
     {{"max_z", 4, 0, 272, Pins::kNone},
      {"max_raw", 16, 3, 2075, Pins::kFew},
      {"mean_raw", 64, 0, 9600, Pins::kMany},
      {"max_z", 129, 0, 2075, Pins::kNone}}},
};

struct Pair {
  weir_session* session[2] = {nullptr, nullptr};  // the reference, the one under test
  StreamView stream(int side, uint32_t index) const {
    return static_cast<const weir::Session*>(session[side])->kv().stream(index);
  }
  const weir::KvShape& shape() const { return static_cast<const weir::Session*>(session[0])->kv().shape(); }
};

struct Counts {
  uint32_t same_pages = 0, same_best = 0;  // steps
  uint32_t near_ties = 0;                  // pages of one side that the other side does not have
  bool ok = true;
  double score = 0.0;                       // largest distance, relative to the limit
  double logits = 0.0, other_logits = 0.0;  // largest distance with the same pages, and with other ones
};

// Rows that a step with these scores attends, ascending.
std::vector<uint32_t> chosen_rows(const StreamView& s, const float* score, uint32_t budget, uint32_t sinks) {
  std::vector<uint32_t> forced, others;
  for (uint32_t row = 0; row < s.n_pages; ++row) {
    const bool stays = row + 1 == s.n_pages || row < sinks || (s.flags[row] & weir::kPageKept) != 0;
    (stays ? forced : others).push_back(row);
  }
  std::stable_sort(others.begin(), others.end(), [&](uint32_t a, uint32_t b) { return score[a] > score[b]; });
  const size_t n_best = budget - std::min<size_t>(budget, forced.size());
  others.resize(std::min(others.size(), n_best));
  forced.insert(forced.end(), others.begin(), others.end());
  std::sort(forced.begin(), forced.end());
  return forced;
}

// Largest distance of a stream's scores, relative to the limit; a NaN is infinitely far. If all scores are equal their
// standard deviation is rounding error and is not compared.
double scores_apart(const float* want, const float* got, uint32_t n, double limit, bool relative, bool equal) {
  double worst = 0.0, high = 0.0;
  for (uint32_t row = 0; row < n; ++row) {
    const double off = std::fabs(double{want[row]} - double{got[row]});
    if (!(off <= worst)) worst = std::isnan(off) ? INFINITY : off;
    high = std::max(high, std::fabs(double{want[row]}));
    if (equal && row + 1 < n && (want[row] != want[0] || got[row] != got[0])) return INFINITY;
  }
  if (relative) return high > 0.0 ? worst / high / limit : worst;
  return equal ? 0.0 : worst / limit;
}

// Whether every page that only one side has is about as good as one that only the other side has. Adds the number of
// such pages to the counts.
bool are_near_ties(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, const float* score, double limit,
                   uint32_t& count) {
  std::vector<uint32_t> only_a, only_b;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only_a));
  std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(only_b));
  count += static_cast<uint32_t>(only_a.size());
  if (only_a.size() != only_b.size()) return false;
  const auto by_score = [&](uint32_t x, uint32_t y) { return score[x] < score[y]; };
  return only_a.empty() || double{score[*std::max_element(only_a.begin(), only_a.end(), by_score)]} -
                                   double{score[*std::min_element(only_b.begin(), only_b.end(), by_score)]} <=
                               2.0 * limit;
}

// Turns one query head's estimates into the scores of a group of such heads. The last page has none, and gets 0.
void scores_of_estimates(const char* agg, const RandomModel& model, std::vector<float>& score) {
  const auto n = static_cast<double>(score.size() - 1);
  if (strcmp(agg, "sum_prob") == 0) {
    const double scale = 1.0 / std::sqrt(double{model.head_dim}), group = model.n_heads / model.n_kv_heads;
    const double high = double{*std::max_element(score.begin(), score.end() - 1)};
    double sum = 0.0;
    for (size_t row = 0; row + 1 < score.size(); ++row) sum += std::exp((double{score[row]} - high) * scale);
    for (size_t row = 0; row + 1 < score.size(); ++row)
      score[row] = static_cast<float>((double{score[row]} - high) * scale - std::log(sum) + std::log(group));
  }
  if (strcmp(agg, "max_z") != 0) return;
  double sum = 0.0, square = 0.0;
  for (size_t row = 0; row + 1 < score.size(); ++row) sum += double{score[row]};
  for (size_t row = 0; row + 1 < score.size(); ++row) square += std::pow(double{score[row]} - sum / n, 2.0);
  for (size_t row = 0; row + 1 < score.size(); ++row)
    score[row] = static_cast<float>((double{score[row]} - sum / n) / std::sqrt(square / n));
}

// Compares a step's scores and selections of the streams before `n_streams`. These are the streams of the layers that
// get the same input on both sides: after a layer that selects otherwise, later layers get another input and store
// another key for the token. Returns whether all pages are the same. `lists_per_head`: the reference session has the
// estimates of single heads instead of the group's scores.
bool compare_choices(const Pair& pair, const RandomModel& model, const Case& c, uint32_t& n_streams,
                     const Limits& limits, bool lists_per_head, Counts& counts) {
  const bool equal_keys = model.equal_keys;
  const bool z = strcmp(c.agg, "max_z") == 0;
  const uint32_t n_kv_heads = pair.shape().n_kv_heads;
  bool same = n_streams == pair.shape().n_streams();
  for (uint32_t s = 0; s < n_streams; ++s) {
    const StreamView a = pair.stream(0, s), b = pair.stream(1, s);
    assert_int_equal(a.n_pages, b.n_pages);
    assert_memory_equal(a.first_pos, b.first_pos, a.n_pages * sizeof(uint32_t));
    assert_memory_equal(a.flags, b.flags, a.n_pages * sizeof(uint32_t));
    if (a.n_pages <= c.budget) continue;  // nothing is selected yet
    std::vector<float> want(a.last_score, a.last_score + a.n_pages);
    if (lists_per_head) scores_of_estimates(c.agg, model, want);
    const double apart = scores_apart(want.data(), b.last_score, a.n_pages, z ? limits.z : limits.raw, !z, equal_keys);
    counts.score = std::max(counts.score, apart);
    // Select by the estimates, not by scores recomputed here, because that could turn near ties into ties.
    const std::vector<uint32_t> rows_a = chosen_rows(a, a.last_score, c.budget, c.sinks),
                                rows_b = chosen_rows(b, b.last_score, c.budget, c.sinks);
    if (rows_a == rows_b) continue;
    same = false;
    n_streams = std::min(n_streams, (s / n_kv_heads + 1) * n_kv_heads);
    double high = 0.0;
    for (uint32_t row = 0; !z && row < a.n_pages; ++row) high = std::max(high, std::fabs(double{want[row]}));
    const double limit = z ? limits.z : limits.raw * high;
    counts.ok = are_near_ties(rows_a, rows_b, want.data(), limit, counts.near_ties) && !equal_keys && counts.ok;
  }
  return same;
}

void compare_logits(const Pair& pair, bool same_pages, Counts& counts) {
  const std::vector<float> want = logits_of(pair.session[0]), got = logits_of(pair.session[1]);
  const auto n = static_cast<uint32_t>(want.size());
  assert_int_equal(n, got.size());
  const double d = distance(want, got);
  double& worst = same_pages ? counts.logits : counts.other_logits;
  if (!(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  float gap[2] = {0.0f, 0.0f};
  counts.same_best += best_of(want.data(), n, &gap[0]) == best_of(got.data(), n, &gap[1]) ? 1 : 0;
  counts.same_pages += same_pages ? 1 : 0;
}

Counts step_both(const RandomModel& model, const Pair& pair, const Case& c, const weir_token* tokens,
                 const Limits& limits, bool lists_per_head) {
  Counts counts;
  const uint32_t n_lists = lists_per_head ? model.n_heads / model.n_kv_heads : 1;
  uint32_t n_streams = pair.shape().n_streams();
  for (uint32_t step = 0; step < kSteps; ++step) {
    weir_session_stats stats[2] = {WEIR_SESSION_STATS_INIT, WEIR_SESSION_STATS_INIT};
    for (int i = 0; i < 2; ++i) {
      assert_ok(weir_session_step(pair.session[i], tokens[step]));
      assert_ok(weir_session_get_stats(pair.session[i], &stats[i]));
      assert_true(static_cast<weir::Session*>(pair.session[i])->host_tables().ok());
    }
    assert_int_equal(stats[0].pages_attended, stats[1].pages_attended * n_lists);
    assert_int_equal(stats[0].pages_resident, stats[1].pages_resident);
    const bool same = compare_choices(pair, model, c, n_streams, limits, lists_per_head, counts);
    compare_logits(pair, same, counts);
  }
  return counts;
}

bool report(const RandomModel& m, const Case& c, uint32_t n_pages, const Limits& limits, const Counts& counts) {
  // Near ties are few, so that in most steps the scores must lead to the attended pages. With several layers the first
  // near tie affects the rest.
  const bool enough = m.n_layers > 1 || counts.same_pages >= (kSteps * 3 + 3) / 4;
  const bool ok = counts.ok && counts.score <= 1.0 && counts.logits <= limits.logits && enough &&
                  counts.same_best >= (kSteps * 3 + 3) / 4;
  std::printf(
      "%u x %2u/%u heads of %3u, %-8s %4u of %5u pages: scores %.3f of limit, logits %.4f, %2u steps with "
      "%u other pages %.4f, %2u with another token%s\n",
      m.n_layers, m.n_heads, m.n_kv_heads, m.head_dim, c.agg, c.budget, n_pages, counts.score, counts.logits,
      kSteps - counts.same_pages, counts.near_ties, counts.other_logits, kSteps - counts.same_best,
      ok ? "" : "   TOO FAR");
  return ok;
}

weir_session* open_session(weir_model* model, int32_t device, const char* agg, const Case& c, uint32_t context) {
  char sinks[16];
  std::snprintf(sinks, sizeof(sinks), "%u", c.sinks);
  const variant v = {"quest", {{"agg", agg}, {"sink_pages", sinks}, {"skip_layers", "0"}, {"digest", c.digest}}, 4};
  const weir_session_options options = options_of(&v, device, c.budget * weir::kPageTokens, context);
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, &options, &session));
  return session;
}

void pin_pages(weir_session* session, const Case& c) {
  if (c.pins == Pins::kNone) return;
  for (uint32_t part = 1; part <= 3; ++part) {
    const uint32_t at = c.n_prompt / 4 * part;
    assert_ok(weir_session_pin(session, at, c.pins == Pins::kFew ? at + 1 : at + 2 * weir::kPageTokens + 1));
  }
}

// Random runs of equal tokens, some eight long: pages then differ as those of texts do, and few of their scores are
// near ties.
std::vector<weir_token> random_tokens(uint32_t n) {
  uint64_t state = 99;
  std::vector<weir_token> tokens(n);
  for (uint32_t i = 0; i < n; ++i) {
    const bool goes_on = i > 0 && weir::test::next_random(state) >> 61 != 0;
    tokens[i] = goes_on ? tokens[i - 1] : weir::test::random_token(state);
  }
  return tokens;
}

// A case of a group, as a test.
struct Job {
  const Group* group;
  const Case* c;
  std::string name;
};

std::vector<Job> jobs_of(const Group* groups, size_t n) {
  std::vector<Job> jobs;
  for (size_t i = 0; i < n; ++i) {
    for (const Case& c : groups[i].cases)
      jobs.push_back({groups + i, &c,
                      "sparse_layer__" + weir::test::name_of(groups[i].model) + "__" + c.digest + "_" + c.agg + "_" +
                          std::to_string(c.budget) + "_pages_after_" + std::to_string(c.n_prompt) + "_tokens"});
  }
  return jobs;
}

void as_on_the_cpu(void** state) {
  NEED_GPU();
  const auto& job = *static_cast<const Job*>(*state);
  const Case& c = *job.c;
  const OpenModel open(job.group->model);
  const std::vector<weir_token> tokens = random_tokens(c.n_prompt + kSteps);
  Pair pair;
  for (int i = 0; i < 2; ++i) {
    pair.session[i] = open_session(open.f.model, i == 0 ? WEIR_DEVICE_CPU : test_device(), c.agg, c, kMaxTokens);
    assert_ok(weir_session_prefill(pair.session[i], tokens.data(), c.n_prompt, nullptr, nullptr));
    pin_pages(pair.session[i], c);
  }
  const Counts counts = step_both(job.group->model, pair, c, tokens.data() + c.n_prompt, kAcrossDevices, false);
  const bool ok = report(job.group->model, c, pair.stream(0, 0).n_pages, kAcrossDevices, counts);
  for (weir_session* session : pair.session) weir_session_destroy(session);
  assert_true(ok);
}

// Noise in the pages, always more of them than the budget: more tiles than a cluster has warps, more rows per block
// than it has threads, and as many rows as the kernel takes. Sketches are compared here alone: across devices keys that
// round otherwise have other codes.
const Group kLongGroups[] = {
    {{"llama", 8, 2, 64, "f16", 1, 16384 * 16, false, true},
     {{"max_z", 64, 3, 8300 * 16, Pins::kFew},
      {"mean_raw", 16, 0, 16384 * 16 - kMaxSteps, Pins::kNone},
      {"max_z", 2048, 0, 16384 * 16 - kMaxSteps, Pins::kMany},
      {"sum_prob", 64, 3, 8300 * 16, Pins::kFew, "sketch"},
      {"sum_prob", 4, 0, 100 * 16 - 3, Pins::kNone, "sketch"}}},
    {{"llama", 32, 8, 128, "q8_0", 1, 16384 * 16, false, true},
     {{"max_z", 128, 0, 2048 * 16, Pins::kNone},
      {"mean_raw", 64, 3, 1000 * 16 - 5, Pins::kFew},
      {"sum_prob", 128, 0, 2048 * 16, Pins::kNone, "sketch"}}},
    {{"qwen3", 3, 1, 128, "f16", 1, 16384 * 16, false, true},
     {{"max_raw", 4096, 0, 8300 * 16 - 5, Pins::kFew},
      {"max_z", 4, 0, 5000 * 16, Pins::kNone},
      {"sum_prob", 16, 1, 8300 * 16 - 5, Pins::kFew, "sketch"}}},
    {{"llama", 8, 1, 128, "f16", 1, 16384 * 16, false, true}, {{"sum_prob", 16, 0, 1000 * 16, Pins::kNone, "sketch"}}},
    {{"qwen3", 7, 1, 64, "f16", 1, 16384 * 16, false, true}, {{"sum_prob", 16, 0, 3000 * 16, Pins::kNone, "sketch"}}},
};

void as_with_lists_for_each_head(void** state) {
  NEED_GPU();
  const auto fill = reinterpret_cast<weir_bench_fill_fn>(weir_get_experimental("weir_bench_fill"));
  assert_non_null(fill);
  const auto& job = *static_cast<const Job*>(*state);
  const Case& c = *job.c;
  const OpenModel open(job.group->model);
  Pair pair;
  for (int i = 0; i < 2; ++i) {
    pair.session[i] = open_session(open.f.model, test_device(), i == 0 ? "qhead" : c.agg, c, c.n_prompt + kSteps);
    assert_ok(fill(pair.session[i], c.n_prompt));
    pin_pages(pair.session[i], c);
  }
  const Counts counts = step_both(job.group->model, pair, c, random_tokens(kSteps).data(), kWithinDevice, true);
  const bool ok = report(job.group->model, c, pair.stream(0, 0).n_pages, kWithinDevice, counts);
  for (weir_session* session : pair.session) weir_session_destroy(session);
  assert_true(ok);
}

// Whether the device has the one launch: compute capability 9.0. On Vulkan every layer takes several.
bool has_one_launch() {
  if (test_device() == WEIR_DEVICE_VULKAN) return false;
  weir::DeviceInfo info;
  assert_true(weir::test::device_module().info(info).ok());
  int number = 0;
  assert_int_equal(std::sscanf(info.arch, "sm_%d", &number), 1);
  return number >= 90;
}

// Without this the tests above could compare the separate kernels with themselves.
void sparse_layer__is_one_launch(void**) {
  NEED_GPU();
  if (!has_one_launch()) {
    print_message("skipped: this device has no such launch\n");
    skip();
  }
  const auto fill = reinterpret_cast<weir_bench_fill_fn>(weir_get_experimental("weir_bench_fill"));
  const auto profile = reinterpret_cast<weir_bench_profile_fn>(weir_get_experimental("weir_bench_profile"));
  assert_non_null(fill);
  assert_non_null(profile);
  for (const Group& group : kLongGroups) {
    const OpenModel open(group.model);
    const std::pair<const char*, const char*> rules[] = {{"max_z", "minmax"},
                                                         {"max_raw", "minmax"},
                                                         {"mean_raw", "minmax"},
                                                         {"qhead", "minmax"},
                                                         {"sum_prob", "sketch"}};
    for (const auto& [agg, digest] : rules) {
      // Tables of twice as many pages need more shared memory than there is for heads of 128.
      const Case c = {agg, 16, 0, 8192 * 16 - 64, Pins::kNone, digest};
      weir_session* session = open_session(open.f.model, test_device(), agg, c, 8192 * 16);
      double seconds[5] = {};
      assert_ok(fill(session, c.n_prompt));
      assert_ok(profile(session, 5, seconds));
      const bool apart = std::strcmp(agg, "qhead") == 0;
      assert_int_equal(seconds[1] > 0.0, apart);
      assert_int_equal(seconds[2] > 0.0, apart);
      assert_true(seconds[3] > 0.0);
      weir_session_destroy(session);
    }
  }
}

// A prompt of which few pages are kept is attended whole, however many tokens it had.
void sparse_layer__of_a_cut_prompt(void**) {
  NEED_GPU();
  const OpenModel open(kGroups[0].model);
  const std::vector<weir_token> tokens = random_tokens(1500 + 3 * kMaxSteps);
  const variant v = {
      "quest", {{"skip_layers", "0"}, {"dense_tokens", "640"}, {"prompt", "snapkv"}, {"prompt_budget", "576"}}, 4};
  weir_session* sessions[2];
  for (int i = 0; i < 2; ++i) {
    const weir_session_options options = options_of(&v, i == 0 ? WEIR_DEVICE_CPU : test_device(), 96, kMaxTokens);
    assert_ok(weir_session_create(open.f.model, &options, &sessions[i]));
    assert_ok(weir_session_prefill(sessions[i], tokens.data(), 1500, nullptr, nullptr));
  }
  bool attended_all = false, selected = false;
  for (uint32_t step = 0; step < 3 * kMaxSteps; ++step) {
    weir_session_stats stats[2] = {WEIR_SESSION_STATS_INIT, WEIR_SESSION_STATS_INIT};
    for (int i = 0; i < 2; ++i) {
      assert_ok(weir_session_step(sessions[i], tokens[1500 + step]));
      assert_ok(weir_session_get_stats(sessions[i], &stats[i]));
    }
    assert_int_equal(stats[0].pages_resident, stats[1].pages_resident);
    assert_int_equal(stats[0].pages_attended, stats[1].pages_attended);
    (stats[0].pages_attended == stats[0].pages_resident ? attended_all : selected) = true;
  }
  assert_true(attended_all && selected);
  for (weir_session* session : sessions) weir_session_destroy(session);
}

struct RecallCase {
  RandomModel model;
  const char *agg, *digest;
  uint32_t from, spill_flags;
  uint32_t n_steps;

  uint32_t sinks() const { return from == 17 ? 1 : 0; }  // pages that are always attended
};

// The last one's layers take five launches. In the one before, a step after the rewind brings back more pages than a
// warp finds one by one.
const RecallCase kRecallCases[] = {
    {{"llama", 2, 2, 64, "f16", 1}, "max_z", "cuboid_mean", 10, 0, 600},
    {{"llama", 8, 2, 128, "q8_0", 1}, "max_raw", "minmax", 17, WEIR_SPILL_NO_RAW, 600},
    {{"qwen3", 3, 1, 64, "f16", 2}, "max_z", "minmax", 3, 0, 600},
    {{"llama", 16, 8, 128, "q8_0", 1}, "max_z", "cuboid_mean", 14, 0, 600},
    {{"qwen2", 7, 1, 128, "q8_0", 2}, "mean_raw", "cuboid_mean", 8, WEIR_SPILL_NO_RAW, 600},
    {{"llama", 8, 2, 128, "q8_0", 2}, "sum_prob", "sketch", 10, 0, 600},
    {{"llama", 4, 1, 64, "f16", 1}, "sum_prob", "sketch", 14, WEIR_SPILL_NO_RAW, 600},
    {{"llama", 4, 1, 64, "f16", 1}, "max_raw", "minmax", 28, 0, 1500},
    {{"qwen3", 12, 1, 96, "f16", 1}, "max_raw", "minmax", 10, 0, 600},
};

weir_session* open_recall(weir_model* model, const RecallCase& c, const char* attend) {
  char from[16], sinks[16];
  std::snprintf(from, sizeof(from), "%u", c.from);
  std::snprintf(sinks, sizeof(sinks), "%u", c.sinks());
  const weir_key_value o[] = {{"agg", c.agg},        {"digest", c.digest},    {"recall_from", from},
                              {"sink_pages", sinks}, {"protect_recent", "1"}, {"recall_pages", "0"},
                              {"attend", attend}};
  weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
  options.device = test_device();
  options.policy = "arkvale";
  options.policy_options = o;
  options.n_policy_options = static_cast<uint32_t>(std::size(o));
  options.budget_tokens = (c.from + 4) * weir::kPageTokens;
  options.context_tokens = 2048;
  options.spill_flags = c.spill_flags;
  weir_session* session = nullptr;
  assert_ok(weir_session_create(model, &options, &session));
  return session;
}

// Steps two sessions and compares every bit. Returns the most pages that came back in one step.
uint64_t step_alike(weir_session* (&sessions)[2], const weir_token* tokens, uint32_t n, const char* what) {
  weir_session_stats stats[2] = {WEIR_SESSION_STATS_INIT, WEIR_SESSION_STATS_INIT};
  assert_ok(weir_session_get_stats(sessions[1], &stats[1]));
  uint64_t most = 0;
  for (uint32_t step = 0; step < n; ++step) {
    const uint64_t before = stats[1].pages_recalled;
    std::vector<float> logits[2];
    for (int i = 0; i < 2; ++i) {
      assert_ok(weir_session_step(sessions[i], tokens[step]));
      assert_ok(weir_session_get_stats(sessions[i], &stats[i]));
      logits[i] = logits_of(sessions[i]);
    }
    assert_true(stats[1].pages_recalled >= before);
    most = std::max(most, stats[1].pages_recalled - before);
    assert_int_equal(stats[0].pages_attended, stats[1].pages_attended);
    if (std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)) != 0)
      fail_msg("%s: step %u of %u differs by %.2g", what, step, n, distance(logits[0], logits[1]));
  }
  return most;
}

// When every wanted page comes back and only those are attended, it makes no difference, in any bit, that pages leave:
// not before and after pages are pinned, nor after a rewind, when slots are free.
void sparse_layer__recall_is_as_if_no_page_left(void**) {
  NEED_GPU();
  const auto profile = reinterpret_cast<weir_bench_profile_fn>(weir_get_experimental("weir_bench_profile"));
  for (const RecallCase& c : kRecallCases) {
    const uint32_t n_prompt = (c.from + 2) * weir::kPageTokens - 3;  // quest selects from the first step on
    const OpenModel open(c.model);
    const std::string what = weir::test::name_of(c.model) + " " + c.agg + " " + c.digest;
    const uint32_t n_steps = steps_at_most(c.n_steps);
    const std::vector<weir_token> tokens = random_tokens(n_prompt + n_steps);
    weir_session* sessions[2] = {open_session(open.f.model, test_device(), c.agg,
                                              {c.agg, c.from + 1, c.sinks(), 0, Pins::kNone, c.digest}, 2048),
                                 open_recall(open.f.model, c, "top")};
    for (weir_session* session : sessions)
      assert_ok(weir_session_prefill(session, tokens.data(), n_prompt, nullptr, nullptr));
    const weir_token* next = tokens.data() + n_prompt;
    const uint64_t first = step_alike(sessions, next, n_steps / 2, what.c_str());
    for (weir_session* session : sessions) assert_ok(weir_session_pin(session, 20, 40));  // two pages, maybe cold
    const uint64_t pinned = step_alike(sessions, next + n_steps / 2, n_steps / 2, what.c_str());
    for (weir_session* session : sessions) assert_ok(weir_session_rewind(session, n_prompt + n_steps / 5, 0));
    const uint64_t rewound = step_alike(sessions, next, n_steps / 3, what.c_str());
    weir_session_stats stats = WEIR_SESSION_STATS_INIT;
    assert_ok(weir_session_get_stats(sessions[1], &stats));
    const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
    std::printf("%s: %llu pages came back, at most %llu, %llu and %llu in one step\n", what.c_str(),
                number(stats.pages_recalled), number(first), number(pinned), number(rewound));
    // Without these the test could do without what it is about.
    double seconds[5] = {};
    assert_ok(profile(sessions[1], tokens[0], seconds));
    if (n_steps == c.n_steps) {
      assert_true(stats.pages_recalled > 30);
      assert_true(c.from < 28 || rewound > 12);
      assert_int_equal(seconds[1] > 0.0, !has_one_launch() || c.model.head_dim == 96);
    }
    for (weir_session* session : sessions) weir_session_destroy(session);
  }
}

}  // namespace

int main() {
  std::vector<CMUnitTest> tests;
  std::vector<Job> jobs = jobs_of(kGroups, std::size(kGroups)),
                   long_jobs = jobs_of(kLongGroups, std::size(kLongGroups));
  for (Job& job : jobs) tests.push_back({job.name.c_str(), as_on_the_cpu, nullptr, nullptr, &job});
  for (Job& job : long_jobs) tests.push_back({job.name.c_str(), as_with_lists_for_each_head, nullptr, nullptr, &job});
  tests.push_back(cmocka_unit_test(sparse_layer__is_one_launch));
  tests.push_back(cmocka_unit_test(sparse_layer__of_a_cut_prompt));
  tests.push_back(cmocka_unit_test(sparse_layer__recall_is_as_if_no_page_left));
  return _cmocka_run_group_tests("device/sparse_layer", tests.data(), tests.size(), nullptr, nullptr);
}
