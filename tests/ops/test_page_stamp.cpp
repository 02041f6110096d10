// ops: page_stamp. Mirrors lib/ops/page_stamp_ref.cpp, lib/cpu/page_stamp.cpp.
#include "tests/ops/harness.h"

namespace weir::test {
namespace {

struct Spec {
  std::string name;
  uint32_t n_kv_heads, group;
  uint32_t n_pages;
  StampRule rule;
  float r, alpha;
  bool rank_all;
  uint32_t n_values;    // > 0: weights have only this many values, so that there are ties
  bool listed = false;  // only some rows have weights
};

struct Stamps {
  std::vector<uint32_t> stamp;
  std::vector<float> score;
  std::vector<uint32_t> gap = {};
};

// The rows that have weights; none: all rows.
struct Lists {
  std::vector<uint32_t> select, n_select;
};

// Runs the op for one stream, with its arguments in vectors.
Stamps run_op(const Backend& backend, const Spec& s, uint32_t capacity, const std::vector<float>& weight,
              const std::vector<uint32_t>& flags, std::vector<uint32_t> stamp, uint32_t now, const Lists& lists = {},
              std::vector<uint32_t> gap = {}) {
  std::vector<float> score(stamp.size(), -1.0f);
  const std::vector<uint32_t> n_pages(s.n_kv_heads, s.n_pages);
  PageStampArgs a = {};
  a.weight = weight.data();
  if (!lists.select.empty()) {
    a.select = lists.select.data();
    a.n_select = lists.n_select.data();
  }
  a.stamp = stamp.data();
  if (!gap.empty()) a.gap = gap.data();
  a.last_score = score.data();
  a.flags = flags.data();
  a.n_pages = n_pages.data();
  a.capacity = capacity;
  a.n_heads = s.n_kv_heads * s.group;
  a.n_kv_heads = s.n_kv_heads;
  a.now = now;
  a.rule = s.rule;
  a.rank_all = s.rank_all;
  a.r = s.r;
  a.alpha = s.alpha;
  OpShapes shapes;
  shapes.n_threads = 3;
  shapes.n_heads = a.n_heads;
  shapes.n_kv_heads = s.n_kv_heads;
  shapes.max_pages = capacity;
  Machine machine(backend, shapes);
  machine.check(backend.ops.page_stamp(machine.cx(), a));
  return {stamp, score, gap};
}

std::vector<Output> run_spec(const Backend& backend, const Spec& s) {
  const uint32_t capacity = s.n_pages + 5;
  Random random(s.n_pages + s.n_values);
  std::vector<float> weight(size_t{s.n_kv_heads} * s.group * capacity);
  for (float& w : weight) {
    w = s.n_values > 0 ? static_cast<float>(random.below(s.n_values)) / static_cast<float>(s.n_values)
                       : static_cast<float>(random.uniform());
    if (s.n_values > 0 && random.below(8) == 0) w = -0.0f;
    if (s.n_values == 2 && random.below(16) == 0) w = NAN;
  }
  std::vector<uint32_t> flags(size_t{s.n_kv_heads} * capacity), stamp(flags.size());
  for (uint32_t& f : flags) f = random.below(4) == 0 ? kPagePinned | kPagePrompt : 0;
  for (uint32_t& f : flags) f |= random.below(16) == 0 ? uint32_t{kPageKept} : 0u;
  for (uint32_t& x : stamp) x = random.below(50);
  Lists lists;
  for (uint32_t head = 0; s.listed && head < s.n_kv_heads; ++head) {
    lists.n_select.push_back(0);
    lists.select.resize(size_t{head + 1} * capacity, UINT32_MAX);
    for (uint32_t row = 0; row < s.n_pages; ++row) {
      if (random.below(3) != 0 || row + 1 == s.n_pages)
        lists.select[size_t{head} * capacity + lists.n_select[head]++] = row;
    }
  }
  std::vector<uint32_t> gap(stamp.size());
  for (uint32_t& x : gap) x = random.below(80);
  const Stamps got = run_op(backend, s, capacity, weight, flags, stamp, 77, lists, gap);
  return {{"stamp", std::vector<float>(got.stamp.begin(), got.stamp.end())},
          {"last_score", got.score},
          {"gap", std::vector<float>(got.gap.begin(), got.gap.end())}};
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  const auto add = [&](const Spec& s) {
    list.push_back({"page_stamp__" + s.name, [s](const Backend& b) { return run_spec(b, s); }, 0.0,
                    "the same pages on every backend"});
  };
  for (uint32_t n : {1u, 2u, 3u, 17u, 64u, 256u}) {
    for (float r : {0.0f, 0.2f, 0.5f, 1.0f}) {
      const std::string tail = std::to_string(n) + "_pages_r" + std::to_string(static_cast<int>(r * 10.0f));
      add({"top_" + tail, 2, 3, n, StampRule::kTopR, r, 0.0f, false, 0});
      add({"top_all_" + tail, 2, 4, n, StampRule::kTopR, r, 0.0f, true, 0});
      add({"top_ties_" + tail, 2, 1, n, StampRule::kTopR, r, 0.0f, false, 3});
      add({"top_nan_" + tail, 2, 1, n, StampRule::kTopR, r, 0.0f, true, 2});
      add({"top_listed_" + tail, 2, 3, n, StampRule::kTopR, r, 0.0f, false, 0, true});
      add({"top_all_listed_" + tail, 3, 1, n, StampRule::kTopR, r, 0.0f, true, 3, true});
    }
    add({"alpha_" + std::to_string(n) + "_pages", 2, 3, n, StampRule::kAlpha, 0.0f, 0.8f, false, 0});
    add({"alpha_listed_" + std::to_string(n) + "_pages", 2, 3, n, StampRule::kAlpha, 0.0f, 0.8f, false, 0, true});
    add({"alpha_ties_" + std::to_string(n) + "_pages", 2, 3, n, StampRule::kAlpha, 0.0f, 0.5f, false, 4});
  }
  add({"shared_among_threads", 4, 2, 1100, StampRule::kTopR, 0.5f, 0.0f, false, 0});
  return list;
}

// The example of docs/algorithms.md, "RaaS", up to the first eviction: tokens as pages of one, kAlpha with 0.1. The
// newest page always gets the stamp.
void alpha_trace_golden(const Backend& backend) {
  Spec s = {"", 1, 1, 0, StampRule::kAlpha, 0.0f, 0.10f, false, 0};
  const std::vector<std::vector<float>> weights = {
      {1.0f}, {.7f, .3f}, {.5f, .2f, .3f}, {.4f, .05f, .25f, .3f}, {.3f, .2f, .05f, .15f, .3f}};
  const std::vector<std::vector<uint32_t>> want = {{1}, {2, 2}, {3, 3, 3}, {4, 3, 4, 4}, {5, 5, 4, 5, 5}};
  std::vector<uint32_t> stamp;
  for (uint32_t t = 1; t <= 5; ++t) {
    s.n_pages = t;
    stamp.push_back(0);
    const Stamps got = run_op(backend, s, t, weights[t - 1], std::vector<uint32_t>(t, 0), stamp, t);
    stamp = got.stamp;
    assert_memory_equal(stamp.data(), want[t - 1].data(), t * sizeof(uint32_t));
    assert_memory_equal(got.score.data(), weights[t - 1].data(), t * sizeof(float));
  }
}

// Pages 0 (pinned), 1, 2, 3 and 4 (open), two heads. Means .4 .15 .15 .1 .2; ceil(.5 * 3) = 2 of pages 1..3 are the
// best: 1 and 2.
void top_r_golden(const Backend& backend) {
  const Spec s = {"", 1, 2, 5, StampRule::kTopR, 0.5f, 0.0f, false, 0};
  const std::vector<float> weight = {.4f, .2f, .1f, .1f, .2f, .4f, .1f, .2f, .1f, .2f};
  const Stamps got = run_op(backend, s, 5, weight, {kPagePinned, 0, 0, 0, 0}, {1, 1, 1, 1, 1}, 9);
  const uint32_t want[] = {1, 9, 9, 1, 9};
  assert_memory_equal(got.stamp.data(), want, sizeof(want));
  assert_float_equal(got.score[1], 0.15f, 1e-7f);
  // With every page ranked, ceil(.5 * 5) = 3: page 0, the open page, and page 1, the lower of two equals.
  Spec all = s;
  all.rank_all = true;
  const Stamps ranked = run_op(backend, all, 5, weight, {kPagePinned, 0, 0, 0, 0}, {1, 1, 1, 1, 1}, 9);
  const uint32_t want_all[] = {9, 9, 1, 1, 9};
  assert_memory_equal(ranked.stamp.data(), want_all, sizeof(want_all));
}

// Weights of rows 1, 3, 4 and 6 of seven, two heads; the other rows weigh 0 and are ranked like any. Row 3 is kept by
// the application, so it is not ranked, as if it were pinned.
void listed_rows_golden(const Backend& backend) {
  const Spec s = {"", 1, 2, 7, StampRule::kTopR, 0.4f, 0.0f, false, 0};
  const std::vector<float> weight = {.1f, .5f, .3f, .1f, NAN, NAN, NAN, .3f, .3f, .3f, .1f, NAN, NAN, NAN};
  const Lists lists = {{1, 3, 4, 6, UINT32_MAX, UINT32_MAX, UINT32_MAX}, {4}};
  const std::vector<uint32_t> flags = {0, 0, 0, kPageKept, 0, 0, 0};
  const std::vector<float> want_score = {0, .2f, 0, .4f, .3f, 0, .1f};
  // ceil(.4 * 5) = 2 of rows 0, 1, 2, 4, 5: rows 4 and 1. The open page is stamped as well.
  const Stamps got = run_op(backend, s, 7, weight, flags, std::vector<uint32_t>(7, 1), 9, lists);
  const std::vector<uint32_t> want = {1, 9, 1, 1, 9, 1, 9};
  assert_true(got.stamp == want);
  for (size_t row = 0; row < 7; ++row) assert_float_equal(got.score[row], want_score[row], 1e-7f);
  Spec three = s;  // ceil(.6 * 5): also the lowest of the rows without weight
  three.r = 0.6f;
  const std::vector<uint32_t> want_three = {9, 9, 1, 1, 9, 1, 9};
  assert_true(run_op(backend, three, 7, weight, flags, std::vector<uint32_t>(7, 1), 9, lists).stamp == want_three);
  Spec alpha = s;  // the maximum over heads, kept or not; rows without weight never
  alpha.rule = StampRule::kAlpha;
  alpha.alpha = 0.29f;
  const std::vector<uint32_t> want_alpha = {1, 9, 1, 9, 9, 1, 9};
  assert_true(run_op(backend, alpha, 7, weight, flags, std::vector<uint32_t>(7, 1), 9, lists).stamp == want_alpha);
}

// A gap grows to what a hit ends, and never shrinks; a page that is not hit keeps its gap. The stamp of page 4 is as
// new as the step.
void gaps_golden(const Backend& backend) {
  const std::vector<float> weight = {.5f, .5f, .1f, .5f, .5f, .1f};
  const std::vector<uint32_t> flags(6, 0), stamp = {1, 8, 1, 5, 9, 8}, gap = {3, 3, 3, 4, 0, 0};
  const std::vector<uint32_t> want_stamp = {9, 9, 1, 9, 9, 9}, want_gap = {8, 3, 3, 4, 0, 1};
  const Spec alpha = {"", 1, 1, 6, StampRule::kAlpha, 0.0f, 0.3f, false, 0};
  const Spec best = {"", 1, 1, 6, StampRule::kTopR, 0.8f, 0.0f, false, 0};  // ceil(.8 * 5) = 4 of the pages 0 to 4
  for (const Spec& s : {alpha, best}) {
    const Stamps got = run_op(backend, s, 6, weight, flags, stamp, 9, {}, gap);
    assert_true(got.stamp == want_stamp);
    assert_true(got.gap == want_gap);
  }
}

// A list of all rows gives the result of no list.
void list_of_all_rows_is_no_list(const Backend& backend) {
  for (StampRule rule : {StampRule::kTopR, StampRule::kAlpha}) {
    const Spec s = {"", 2, 2, 20, rule, 0.3f, 0.7f, false, 0};
    Random random(14);
    std::vector<float> weight(size_t{4} * 20);
    for (float& w : weight) w = static_cast<float>(random.uniform());
    Lists all = {std::vector<uint32_t>(40), {20, 20}};
    for (uint32_t i = 0; i < 40; ++i) all.select[i] = i % 20;
    const std::vector<uint32_t> flags(40, 0), stamp(40, 3);
    const Stamps listed = run_op(backend, s, 20, weight, flags, stamp, 8, all);
    const Stamps plain = run_op(backend, s, 20, weight, flags, stamp, 8);
    assert_true(listed.stamp == plain.stamp && listed.score == plain.score);
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/page_stamp", cases(),
                   {{"page_stamp__alpha_trace_golden", alpha_trace_golden},
                    {"page_stamp__top_r_golden", top_r_golden},
                    {"page_stamp__listed_rows_golden", listed_rows_golden},
                    {"page_stamp__gaps_golden", gaps_golden},
                    {"page_stamp__list_of_all_rows_is_no_list", list_of_all_rows_is_no_list}});
}
