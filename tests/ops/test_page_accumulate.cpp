// ops: page_accumulate. Mirrors lib/ops/page_accumulate_ref.cpp, lib/cpu/page_accumulate.cpp.
#include "ops/step_rules.h"
#include "tests/ops/harness.h"

namespace weir::test {
namespace {

constexpr AccumulateRule kRules[] = {AccumulateRule::kSum, AccumulateRule::kLatestGroup, AccumulateRule::kLatestLayer,
                                     AccumulateRule::kNoisy, AccumulateRule::kHits};
constexpr const char* kRuleNames[] = {"sum", "latest_group", "latest_layer", "noisy", "hits"};
static_assert(std::size(kRules) == WEIR_ACCUMULATE_RULES);

struct Case {
  AccumulateRule rule;
  uint32_t n_kv_heads, group, capacity;
  std::vector<uint32_t> n_pages, len;
  std::vector<float> weight, score;
  std::vector<uint32_t> flags, mark;  // empty: no marks
  AccumulateOptions options = {.seed = 7, .tau = 1.0f, .tau_end = 2.0f, .tau_tokens = 400, .keep = 0.75f};
  uint32_t n_tokens = 199;

  uint32_t n_heads() const { return n_kv_heads * group; }
  void run(const Backend& backend) {
    OpShapes shapes;
    shapes.n_threads = 2;
    shapes.n_heads = n_heads();
    shapes.n_kv_heads = n_kv_heads;
    shapes.max_pages = capacity;
    std::vector<uint32_t> first_pos(size_t{n_kv_heads} * capacity);
    for (size_t i = 0; i < first_pos.size(); ++i) first_pos[i] = static_cast<uint32_t>(i % capacity * 3 * kPageTokens);
    Machine machine(backend, shapes);
    machine.check(backend.ops.page_accumulate(
        machine.cx(), {weight.data(), score.data(), len.data(), n_pages.data(), capacity, n_heads(), n_kv_heads, rule,
                       flags.empty() ? nullptr : flags.data(), mark.empty() ? nullptr : mark.data(), &n_tokens,
                       first_pos.data(), 5, options}));
  }
};

// Streams differ in length unless the rule needs equal ones; rows beyond the table have NaN weights.
Case random_case(AccumulateRule rule, uint32_t group, uint32_t n_pages, uint32_t spare_rows = 4) {
  Case c = {rule, 3, group, n_pages + spare_rows, {}, {}, {}, {}, {}, {}};
  Random random(n_pages + group);
  for (uint32_t i = 0; i < 3; ++i)
    c.n_pages.push_back(rule == AccumulateRule::kLatestLayer ? n_pages : n_pages - std::min(i, n_pages));
  for (uint32_t head = 0; head < c.n_heads(); ++head) {
    for (uint32_t row = 0; row < c.capacity; ++row)
      c.weight.push_back(row < c.n_pages[head / group] ? static_cast<float>(random.uniform()) : NAN);
  }
  for (uint32_t i = 0; i < 3 * c.capacity; ++i) {
    c.score.push_back(random.normal());
    c.len.push_back(1 + random.below(kPageTokens));
  }
  return c;
}

// A fifth of the pages must not be evicted. If streams differ in length, the first one is full.
void add_marks(Case& c) {
  Random random(c.capacity);
  for (uint32_t i = 0; i < c.n_kv_heads * c.capacity; ++i) {
    c.flags.push_back(random.below(5) != 0   ? kPagePrompt * random.below(2)
                      : random.below(2) != 0 ? kPagePinned
                                             : kPageKept);
    c.mark.push_back(random.below(100));
  }
}

std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  for (size_t rule = 0; rule < std::size(kRules); ++rule) {
    for (uint32_t group : {1u, 2u, 3u, 4u, 7u, 8u}) {
      for (uint32_t n_pages : {1u, 2u, 17u, 300u}) {
        for (bool marks : {false, true}) {
          const auto run = [=](const Backend& backend) -> std::vector<Output> {
            Case c = random_case(kRules[rule], group, n_pages, marks ? 0 : 4);
            if (marks) add_marks(c);
            c.run(backend);
            c.run(backend);
            if (!marks) return {{"score", c.score}};
            return {{"score", c.score}, {"mark", std::vector<float>(c.mark.begin(), c.mark.end())}};
          };
          list.push_back({std::string("page_accumulate__") + kRuleNames[rule] + "_g" + std::to_string(group) + "_" +
                              std::to_string(n_pages) + (marks ? "_pages_with_marks" : "_pages"),
                          run, kRules[rule] == AccumulateRule::kNoisy ? 1e-11 : 0.0,
                          "the same sums in the same order; with noise logarithms and exponentials within 1e-6"});
        }
      }
    }
  }
  return list;
}

// Two streams of two heads and two pages, of 16 and 4 tokens.
Case small_case(AccumulateRule rule) {
  return {rule,
          2,
          2,
          3,
          {2, 2},
          {16, 4, 0, 16, 4, 0},
          {0.5f, 0.5f, NAN, 0.25f, 0.75f, NAN, 1.0f, 0.0f, NAN, 0.125f, 0.875f, NAN},
          {10.0f, 20.0f, -7.0f, 30.0f, 40.0f, -7.0f},
          {},
          {}};
}

void assert_scores(const Case& c, const std::vector<float>& want) {
  for (size_t i = 0; i < want.size(); ++i) assert_float_equal(c.score[i], want[i], 1e-7f);
}

void rules_golden(const Backend& backend) {
  Case sum = small_case(AccumulateRule::kSum);
  sum.run(backend);
  assert_scores(sum, {10.75f, 21.25f, -7.0f, 31.125f, 40.875f, -7.0f});
  sum.run(backend);  // the previous sum stays
  assert_scores(sum, {11.5f, 22.5f, -7.0f, 32.25f, 41.75f, -7.0f});
  Case group = small_case(AccumulateRule::kLatestGroup);
  group.run(backend);
  group.run(backend);  // the previous score is replaced
  assert_scores(group, {0.375f / 16, 0.625f / 4, -7.0f, 0.5625f / 16, 0.4375f / 4, -7.0f});
  Case layer = small_case(AccumulateRule::kLatestLayer);
  layer.run(backend);
  const float first = 1.875f / 4 / 16, second = 2.125f / 4 / 4;
  assert_scores(layer, {first, second, -7.0f, first, second, -7.0f});
}

// Shares of noisy pages: those of the plain masses where the temperature is 1 and the noise is divided out, and even
// ones where it is high. Every head's add up to 1.
void noisy_golden(const Backend& backend) {
  constexpr uint32_t n = 5;
  const std::vector<float> mass = {0.5f, 0.25f, 0.125f, 0.0f, 0.125f};
  Case c = {AccumulateRule::kNoisy,      1,  1, n, {n}, std::vector<uint32_t>(n, 16), mass,
            std::vector<float>(n, 3.0f), {}, {}};
  c.options = {.seed = 3, .tau = 1.0f, .tau_end = 1.0f, .tau_tokens = 1};
  c.run(backend);
  double sum = 0.0;
  for (uint32_t row = 0; row < n; ++row) sum += double{mass[row]} * noise_factor(3, 5, row * 48);
  for (uint32_t row = 0; row < n; ++row)
    assert_true(std::fabs(c.score[row] - 3.0 - mass[row] * noise_factor(3, 5, row * 48) / sum) < 2e-6);
  assert_true(c.score[3] == 3.0f);  // a page without mass gets nothing
  c.score.assign(n, 0.0f);
  c.options.tau = c.options.tau_end = 1e4f;
  c.run(backend);
  for (uint32_t row = 0; row < n; ++row) assert_true(std::fabs(c.score[row] - (row == 3 ? 0.0 : 0.25)) < 1e-3);
  // Half of the way the temperature is between its ends: square roots of masses would be shares at 2.
  c.score.assign(n, 0.0f);
  c.options = {.seed = 3, .tau = 1.0f, .tau_end = 3.0f, .tau_tokens = 400};
  c.run(backend);
  sum = 0.0;
  for (uint32_t row = 0; row < n; ++row) sum += std::sqrt(double{mass[row]} * noise_factor(3, 5, row * 48));
  for (uint32_t row = 0; row < n; ++row)
    assert_true(std::fabs(c.score[row] - std::sqrt(double{mass[row]} * noise_factor(3, 5, row * 48)) / sum) < 2e-6);
  // Nobody attends anything: nothing changes.
  c.weight.assign(n, 0.0f);
  const std::vector<float> before = c.score;
  c.run(backend);
  assert_memory_equal(c.score.data(), before.data(), n * sizeof(float));
}

// Standard Gumbel noise has the mean 0.5772 and the variance 1.6449, and is not the same in two streams or pages.
void noise_is_gumbel(const Backend&) {
  double sum = 0.0, square = 0.0;
  constexpr uint32_t n = 20000;
  for (uint32_t i = 0; i < n; ++i) {
    const double x = std::log(double{noise_factor(1, i % 100, i / 100 * 16)});
    sum += x, square += x * x;
  }
  const double mean = sum / n;
  assert_true(std::fabs(mean - 0.5772) < 0.04);
  assert_true(std::fabs(square / n - mean * mean - 1.6449) < 0.1);
  assert_true(noise_factor(1, 0, 0) != noise_factor(1, 1, 0) && noise_factor(1, 0, 0) != noise_factor(1, 0, 16) &&
              noise_factor(1, 0, 0) != noise_factor(2, 0, 0));
}

// 16 tokens of 200 have 0.08 of even attention, 4 have 0.02. One head of the group is enough.
void hits_golden(const Backend& backend) {
  Case c = small_case(AccumulateRule::kHits);
  c.weight = {0.079f, 0.0199f, NAN, 0.0801f, 0.001f, NAN, 0.0f, 0.0201f, NAN, 0.07f, 0.0f, NAN};
  c.run(backend);
  assert_scores(c, {8.5f, 15.0f, -7.0f, 22.5f, 31.0f, -7.0f});
  c.n_tokens = 399;  // the share of a page is half as much
  c.run(backend);
  assert_scores(c, {7.375f, 12.25f, -7.0f, 17.875f, 24.25f, -7.0f});
}

// Every run adds one mark: to the least score, the lower row among equals, NaN before all; never to a page that must
// not be evicted or to the last row.
void marks_golden(const Backend& backend) {
  const auto marked = [&](std::vector<float> weight, std::vector<uint32_t> flags) {
    const auto n = static_cast<uint32_t>(weight.size());
    Case c = {AccumulateRule::kLatestGroup,
              1,
              1,
              n,
              {n},
              std::vector<uint32_t>(n, 1),
              std::move(weight),
              std::vector<float>(n),
              std::move(flags),
              std::vector<uint32_t>(n, 3)};
    c.run(backend);
    uint32_t row = n;
    for (uint32_t i = 0; i < n; ++i) {
      if (c.mark[i] == 3) continue;
      assert_true(row == n && c.mark[i] == 4);
      row = i;
    }
    return row;
  };
  assert_int_equal(marked({0.4f, 0.1f, 0.3f, 0.2f}, {0, 0, 0, 0}), 1);
  assert_int_equal(marked({0.4f, 0.3f, 0.2f, 0.1f}, {0, 0, 0, 0}), 2);
  assert_int_equal(marked({0.2f, 0.2f, 0.2f, 0.1f}, {0, 0, 0, 0}), 0);
  assert_int_equal(marked({0.1f, 0.2f, 0.4f, 0.3f}, {kPagePinned, kPageKept, kPagePrompt, 0}), 2);
  assert_int_equal(marked({0.1f, NAN, 0.4f, 0.3f}, {0, 0, 0, 0}), 1);
  assert_int_equal(marked({0.1f, 0.2f}, {kPagePinned, 0}), 2);  // none may leave
  assert_int_equal(marked({1.0f}, {0}), 1);
  // With the layer's rule every stream marks its own row of the same page, and marks of several runs add up. A table
  // with a free row gets none.
  Case layer = random_case(AccumulateRule::kLatestLayer, 2, 17, 0),
       free = random_case(AccumulateRule::kLatestLayer, 2, 17, 1);
  for (Case* c : {&layer, &free}) {
    c->flags.assign(c->score.size(), 0);
    c->len.assign(c->score.size(), kPageTokens);
    c->mark.assign(c->score.size(), 0);
    c->run(backend);
    c->run(backend);
  }
  const auto least = std::min_element(layer.score.begin(), layer.score.begin() + 16) - layer.score.begin();
  std::vector<uint32_t> want(layer.score.size());
  for (size_t kv_head = 0; kv_head < 3; ++kv_head) want[kv_head * 17 + static_cast<size_t>(least)] = 2;
  assert_true(layer.mark == want);
  assert_true(free.mark == std::vector<uint32_t>(free.mark.size()));
}

// With one stream a layer is its group. If the weights sum to 1 over the pages, so do scores times tokens.
void one_stream_layer_is_its_group(const Backend& backend) {
  for (uint32_t group : {1u, 3u, 8u}) {
    constexpr uint32_t n = 9;
    Case c = {AccumulateRule::kLatestGroup, 1, group, n, {n}, {}, {}, std::vector<float>(n, 5.0f), {}, {}};
    Random random(group);
    for (uint32_t row = 0; row < n; ++row) c.len.push_back(1 + random.below(kPageTokens));
    for (uint32_t head = 0; head < group; ++head) {
      double sum = 0.0;
      for (uint32_t row = 0; row < n; ++row) sum += double{c.weight.emplace_back(static_cast<float>(random.uniform()))};
      for (uint32_t row = 0; row < n; ++row) c.weight[head * n + row] /= static_cast<float>(sum);
    }
    Case layer = c;
    layer.rule = AccumulateRule::kLatestLayer;
    c.run(backend);
    layer.run(backend);
    assert_memory_equal(c.score.data(), layer.score.data(), n * sizeof(float));
    double mass = 0.0;
    for (uint32_t row = 0; row < n; ++row) mass += double{c.score[row]} * c.len[row];
    assert_true(std::fabs(mass - 1.0) < 1e-6);
  }
}

}  // namespace
}  // namespace weir::test

int main() {
  using namespace weir::test;
  return run_group("ops/page_accumulate", cases(),
                   {{"page_accumulate__rules_golden", rules_golden},
                    {"page_accumulate__noisy_golden", noisy_golden},
                    {"page_accumulate__noise_is_gumbel", noise_is_gumbel},
                    {"page_accumulate__hits_golden", hits_golden},
                    {"page_accumulate__marks_golden", marks_golden},
                    {"page_accumulate__one_stream_layer_is_its_group", one_stream_layer_is_its_group}});
}
