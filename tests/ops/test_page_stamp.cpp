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
  uint32_t n_values;  // > 0: weights take only so many values, so that there are ties
};

struct Stamps {
  std::vector<uint32_t> stamp;
  std::vector<float> score;
};

// One stream's worth of arguments around vectors.
Stamps run_op(const Backend& backend, const Spec& s, uint32_t capacity, const std::vector<float>& weight,
              const std::vector<uint32_t>& flags, std::vector<uint32_t> stamp, uint32_t now) {
  std::vector<float> score(stamp.size(), -1.0f);
  const std::vector<uint32_t> n_pages(s.n_kv_heads, s.n_pages);
  PageStampArgs a = {};
  a.weight = weight.data();
  a.stamp = stamp.data();
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
  return {stamp, score};
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
  for (uint32_t& x : stamp) x = random.below(50);
  const Stamps got = run_op(backend, s, capacity, weight, flags, stamp, 77);
  return {{"stamp", std::vector<float>(got.stamp.begin(), got.stamp.end())}, {"last_score", got.score}};
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
    }
    add({"alpha_" + std::to_string(n) + "_pages", 2, 3, n, StampRule::kAlpha, 0.0f, 0.8f, false, 0});
    add({"alpha_ties_" + std::to_string(n) + "_pages", 2, 3, n, StampRule::kAlpha, 0.0f, 0.5f, false, 4});
  }
  add({"shared_among_threads", 4, 2, 1100, StampRule::kTopR, 0.5f, 0.0f, false, 0});
  return list;
}

// Tokens as pages of one, ALPHA with 0.10 (algorithms C.4, the steps before the first eviction). The newest always gets
// the stamp.
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

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group(
      "ops/page_stamp", cases(),
      {{"page_stamp__alpha_trace_golden", alpha_trace_golden}, {"page_stamp__top_r_golden", top_r_golden}});
}
